"""The identity of a node, kept between restarts of its agent.

The data folder is the node: it holds the key that the node generated, the id that the servers
assigned, and two locks. `agent.lock` excludes a second agent; `supervisor.lock` is held by the
supervisor, which may outlive its agent for as long as killing takes.
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

SUPERVISOR_EXIT_TIMEOUT_SECONDS = 3.0
"""Seconds that the supervisor of a dead agent has to exit by itself."""


class Identity(msgspec.Struct, frozen=True):
    """The node's id (None before it has joined), and the key that authenticates it."""

    node: int | None
    key: str


def ensure(data: Path) -> Identity:
    """Return the identity stored in `data`; a new one is stored before it is used."""
    saved = load(data)
    if saved is None:
        saved = Identity(None, f"dulynode_{secrets.token_urlsafe(32)}")
        save(data, saved)
    return saved


def load(data: Path) -> Identity | None:
    """Return the identity stored in `data`, or None if there is none yet."""
    try:
        return msgspec.json.decode((data / "node.json").read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"Cannot read {data / 'node.json'}: {error}. Remove it to join as a new node."
        ) from error


def save(data: Path, identity: Identity) -> None:
    """Store `identity` durably for the next start, readable only by the agent's user."""
    new = data / "node.json.new"
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(identity))
        file.flush()
        os.fsync(file.fileno())
    new.replace(data / "node.json")


def instance_name(data: Path) -> str:
    """Return a short name unique to this folder, for resources that live outside of it.

    The path is not enough: two containers may have the same path, and see the same cgroups.
    """
    path = data.resolve()
    named = f"{path}:{path.stat().st_ino}"
    return "duly-" + hashlib.sha256(os.fsencode(named)).hexdigest()[:12]


def lock(data: Path) -> int:
    """Lock the folder and wait for its former supervisor to exit; keep the returned descriptor."""
    fd = try_lock(data)
    if fd is None:
        raise ConfigError(
            f"Another agent runs on {data}. Give this one a folder of its own with --data."
        )
    return fd


def try_lock(data: Path) -> int | None:
    """Lock the folder like `lock`; None if another process has it."""
    # An agent of root runs tasks as other users, which traverse the folder to their workspaces; all
    # else in it is closed to them.
    make_folder(data, 0o711 if os.geteuid() == 0 else 0o700)
    fd = _open_lock(data / "agent.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    _wait_for_old_supervisor(data / "supervisor.lock")
    return fd


def _open_lock(path: Path) -> int:
    # No link is followed: root may have been given another user's folder.
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"Cannot use {path}: {error.strerror}.") from error


def _wait_for_old_supervisor(path: Path) -> None:
    """Wait until no supervisor holds `path`; kill one that does not exit by itself."""
    fd = _open_lock(path)
    try:
        deadline = time.monotonic() + SUPERVISOR_EXIT_TIMEOUT_SECONDS
        while not _try_lock(fd):
            if time.monotonic() > deadline:
                # The supervisor holds the lock, so the pid in the file is its own.
                with contextlib.suppress(ValueError, ProcessLookupError):
                    os.kill(int(os.pread(fd, 20, 0)), signal.SIGKILL)
            time.sleep(0.02)
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
