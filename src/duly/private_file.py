"""Files that only their owner can read: keys, passwords, tokens.

Each is written beside its final place and then renamed, so that a reader finds all of
it or nothing, also after the machine has lost its power in between. And what every process of
ours does so that others on the machine can read nothing else of it either.
"""

import os
from pathlib import Path
from typing import BinaryIO


def close_to_others() -> None:
    """Let nothing that this process makes be open to others, unless its mode is set afterwards."""
    os.umask(0o077)


def make_folder(folder: Path, mode: int = 0o700) -> None:
    """Make `folder` and what is missing above it with exactly `mode`; what is there stays so."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(mode)


def write_private(file: Path, text: str) -> None:
    """Put `text` into `file`, readable and writable by us alone, replacing what was there."""
    half = file.with_name(file.name + ".half")
    half.unlink(missing_ok=True)
    with open_private(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as out:
        out.write(text.encode())
        out.flush()
        os.fsync(out.fileno())
    half.rename(file)
    sync_folder(file.parent)


def open_private(file: Path, flags: int) -> BinaryIO:
    """Open `file` for writing; if this creates it, it is ours alone from the first moment."""
    return os.fdopen(os.open(file, flags | os.O_NOFOLLOW, 0o600), "wb", buffering=0)


def sync_folder(folder: Path) -> None:
    """Make sure that what was created or renamed in `folder` survives a loss of power."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
