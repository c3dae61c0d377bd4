"""Who this node is, between one start of its agent and the next.

The data folder is the node: it keeps the key that the node made for itself, the id
that the servers gave it, and two locks. `agent.lock` keeps a second agent off;
`supervisor.lock` is held by the supervisor, which may outlive its agent for as long as
killing takes.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import signal
import time
from pathlib import Path

import msgspec

from duly.errors import ConfigError
from duly.private_file import make_folder

SUPERVISOR_PATIENCE = 3.0
"""Seconds that the supervisor of a dead agent has for going by itself."""


class Identity(msgspec.Struct, frozen=True):
    """What the servers call this node (None before it has joined), and how it proves to be it."""

    node: int | None
    key: str


def ensure(data: Path) -> Identity:
    """Return the identity kept in `data`; a new node makes one, and keeps it before it is used."""
    known = load(data)
    if known is None:
        known = Identity(None, f"dulynode_{secrets.token_urlsafe(32)}")
        save(data, known)
    return known


def load(data: Path) -> Identity | None:
    """Return the identity kept in `data`, or None if there is none yet."""
    try:
        return msgspec.json.decode((data / "node.json").read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"Cannot read {data / 'node.json'}: {error}. Remove it to join as a new node."
        ) from error


def save(data: Path, identity: Identity) -> None:
    """Keep `identity` for the next start, readable by nobody else."""
    new = data / "node.json.new"
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(identity))
        file.flush()
        os.fsync(file.fileno())
    new.replace(data / "node.json")


def mark(data: Path) -> str:
    """Return a short name that belongs to this folder alone, for what lives outside of it.

    The path is not enough: two containers may have the same one, and see the same cgroups.
    """
    path = data.resolve()
    named = f"{path}:{path.stat().st_ino}"
    return "duly-" + hashlib.sha256(os.fsencode(named)).hexdigest()[:12]


def lock(data: Path) -> int:
    """Take the folder for this agent, and see its former supervisor off; keep what is returned."""
    # Tasks of root's are other users, and pass through to what is theirs; all else there is closed.
    make_folder(data, 0o711 if os.geteuid() == 0 else 0o700)
    fd = _open_lock(data / "agent.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise ConfigError(
            f"Another agent runs on {data}. Give this one a folder of its own with --data."
        ) from None
    _see_off(data / "supervisor.lock")
    return fd


def _open_lock(path: Path) -> int:
    # No link is followed: root may have been given the folder of somebody else.
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"Cannot use {path}: {error.strerror}.") from error


def _see_off(path: Path) -> None:
    """Wait until no supervisor holds `path`; kill one that does not go by itself."""
    fd = _open_lock(path)
    try:
        deadline = time.monotonic() + SUPERVISOR_PATIENCE
        while not _try(fd):
            if time.monotonic() > deadline:
                # It holds the lock, so the id in the file is its own.
                with contextlib.suppress(ValueError, ProcessLookupError):
                    os.kill(int(os.pread(fd, 20, 0)), signal.SIGKILL)
            time.sleep(0.02)
    finally:
        os.close(fd)


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
