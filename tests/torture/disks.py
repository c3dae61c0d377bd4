"""Fills and frees disks."""

from pathlib import Path

BALLAST = "ballast"


def fill(folder: Path) -> None:
    """Write zeros until the disk of `folder` takes no more."""
    block = 2**20
    with (folder / BALLAST).open("wb", buffering=0) as file:
        while block:
            try:
                file.write(bytes(block))
            except OSError:
                block //= 2


def free(folder: Path) -> None:
    """Give the room back."""
    (folder / BALLAST).unlink(missing_ok=True)
