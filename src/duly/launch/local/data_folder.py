"""The folder that holds everything of one `duly up`, and the right to use it.

The right is a lock that the kernel takes back when its holder dies, however it dies,
so a killed `duly up` never stands in the way of the next one.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duly.errors import ConfigError

LOCK = "up.lock"


def default_data() -> Path:
    """Return where the data is kept unless somebody says otherwise."""
    try:
        return Path("~/.local/share/duly").expanduser()
    except RuntimeError as error:
        raise ConfigError(
            "This user has no home folder; say where Duly may keep its data with --data."
        ) from error


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Hold `folder` for as long as the block lasts; raises ConfigError if another process does."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(
            f"Cannot use {folder}: {error.strerror}. Choose another folder with --data."
        ) from error
    try:
        _lock(folder, lock)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)


def is_claimed(folder: Path) -> bool:
    """Say whether a `duly up` runs on `folder`; raises OSError if that cannot be seen."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _lock(folder: Path, lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        raise ConfigError(
            f"Duly is already up on {folder} (pid {holder}). Use that one, stop it with "
            f"`kill {holder}`, or start another one with another --data and --port.",
            pid=holder,
        ) from error
