"""The data folder of a `duly up`, and the lock on it.

The kernel releases the lock when its holder dies, so a killed `duly up` never blocks the next one.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duly.errors import ConfigError

LOCK = "up.lock"


def default_data() -> Path:
    """Return the default data folder."""
    try:
        return Path("~/.local/share/duly").expanduser()
    except RuntimeError as error:
        raise ConfigError(
            "This user has no home folder. Choose a data folder with --data."
        ) from error


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Lock `folder` until the block ends; raises ConfigError if another process holds it."""
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
    """Return True if a `duly up` runs on `folder`; raises OSError if it cannot be checked."""
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
            f"Duly is already up on {folder} (pid {holder}). Use it, stop it with 'kill {holder}', "
            "or start another with a different --data and --port.",
            pid=holder,
        ) from error
