"""Fills and frees disks."""

from pathlib import Path

BALLAST = "ballast"


def fill(folder: Path) -> None:
    """Write zeros until the disk of `folder` is full."""
    block = 2**20
    with (folder / BALLAST).open("wb", buffering=0) as file:
        while block:
            try:
                file.write(bytes(block))
            except OSError:
                block //= 2


def free(folder: Path) -> None:
    """Remove the file that fills the disk."""
    (folder / BALLAST).unlink(missing_ok=True)
