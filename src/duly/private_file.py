"""Writes files that only their owner can read: keys, passwords, tokens.

A file is written under a temporary name, synced and renamed, so a reader finds all of it or
nothing, even after a power loss. Every process also restricts its umask, so that other users of
the machine cannot read anything else it creates.
"""

import os
from pathlib import Path
from typing import BinaryIO


def restrict_umask() -> None:
    """Make files of this process private unless their mode is set explicitly."""
    os.umask(0o077)


def make_folder(folder: Path, mode: int = 0o700) -> None:
    """Create `folder` and its missing parents with exactly `mode`; existing ones keep theirs."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(mode)


def write_private(file: Path, text: str) -> None:
    """Atomically replace `file` with `text`, readable and writable by its owner only."""
    temporary = file.with_name(file.name + ".half")
    temporary.unlink(missing_ok=True)
    with open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as out:
        out.write(text.encode())
        out.flush()
        os.fsync(out.fileno())
    temporary.rename(file)
    sync_folder(file.parent)


def open_private(file: Path, flags: int) -> BinaryIO:
    """Open `file` for writing; a new file is private from its creation on."""
    return os.fdopen(os.open(file, flags | os.O_NOFOLLOW, 0o600), "wb", buffering=0)


def sync_folder(folder: Path) -> None:
    """Make files created or renamed in `folder` survive a power loss."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
