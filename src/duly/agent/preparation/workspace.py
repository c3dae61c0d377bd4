"""The folder in which an attempt runs: created for it, owned by its user, removed after it.

While a task lives, the contents of its folder are untrusted: files in it are opened only with
`safe_open.py`.
"""

import contextlib
import itertools
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from duly.agent.preparation.safe_open import make_private, open_folder, read_file
from duly.agent.preparation.task_users import User
from duly.wire import UpstreamResult

RESULT_FILE = "result.json"
SCRIPT_FILE = "script"
EMPTY_INPUTS = "no-inputs"
"""The inputs folder of all tasks without inputs."""
FALLBACK_ROOT = Path("/var/lib/duly")
MIN_FREE_BYTES = 64 * 1024
"""A disk with fewer free bytes counts as full."""
MAX_FOLDERS_PER_PASS = 1000
"""Folders that are emptied before the top is scanned again."""


def root(data: Path, mark: str, *, shared: bool) -> Path:
    """Return the folder of all workspaces: inside `data` if tasks can reach it.

    `shared` means that tasks run as other users than the agent, which must be able to traverse
    every folder above.
    """
    inside = data / "work"
    if not shared or all(_is_traversable(folder) for folder in (data, *data.parents)):
        return inside
    return FALLBACK_ROOT / f"work-{mark}"


def _is_traversable(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def make_root(path: Path) -> None:
    """Create the folder of all workspaces; other users may traverse it, but not list it."""
    if path.parent == FALLBACK_ROOT:
        make_fallback_root()
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o711)
    (path / EMPTY_INPUTS).mkdir(exist_ok=True)
    (path / EMPTY_INPUTS).chmod(0o555)


def make_fallback_root() -> None:
    """Create the folder outside of the agent's own, traversable for tasks whatever created it."""
    FALLBACK_ROOT.mkdir(parents=True, exist_ok=True)
    FALLBACK_ROOT.chmod(0o755)


def remove_root(path: Path) -> None:
    """Remove a workspaces folder outside of the agent's own, unless it is not empty."""
    if path.parent == FALLBACK_ROOT:
        with contextlib.suppress(OSError):
            path.rmdir()


def make(path: str, user: User | None, source: str) -> None:
    """Create the workspace for `user`, with the script `source` in it.

    A workspace without a script is created where tasks are started (`spawner.py`).
    """
    Path(path).mkdir(mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(f"{path}/{SCRIPT_FILE}", flags, 0o700)
    with os.fdopen(fd, "wb") as file:
        file.write(source.encode())
        if user is not None:
            os.fchown(file.fileno(), *user)
    if user is not None:
        os.chown(path, *user)


def write_inputs(folder: str, results: Sequence[UpstreamResult]) -> None:
    """Write upstream results into a folder of the agent, which is created if it is missing.

    Only the agent can enter it, and the task that may read it later cannot change the files.
    """
    Path(folder).mkdir(mode=0o700, exist_ok=True)
    top = open_folder(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        for upstream in results:
            fd = os.open(f"{upstream.name}.json", flags, 0o400, dir_fd=top)
            with os.fdopen(fd, "wb") as file:
                file.write(upstream.result)
                os.fchmod(fd, 0o444)
    finally:
        os.close(top)


def show_inputs(folder: str, user: User | None) -> None:
    """Let only the task's user read the folder of its inputs."""
    if user is None:
        Path(folder).chmod(0o500)
    else:
        os.chown(folder, -1, user.gid)
        Path(folder).chmod(0o550)


def read_result(path: str, limit: int) -> bytes | None:
    """Return the result that the task has written; None if there is none.

    A result that is too large is cut to `limit` + 1 bytes, and one that is not a regular file is
    empty: enough to recognise both.
    """
    try:
        return read_file(path, RESULT_FILE, limit + 1) or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return b""


def is_full(path: str) -> bool:
    """Return True if the disk of the workspace has no free space or inodes."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    # A file system without an inode count reports 0 inodes.
    return found.f_bavail * found.f_frsize < MIN_FREE_BYTES or (
        found.f_files > 0 and found.f_favail == 0
    )


def remove(path: str) -> None:
    """Remove a folder tree of any depth, without following links.

    Folders are moved up to the top before they are emptied, so that neither the depth of the
    tree nor the length of its paths matters. The attempt has ended, but it may have given other
    users access, so every folder is made private to the agent before it is read.
    """
    if _remove_if_empty(Path(path)):
        return
    top = open_folder(path)
    try:
        names = (f".{secrets.token_hex(8)}" for _ in itertools.count())
        while folders := _empty(top, top, names):
            for name in folders:
                folder = open_folder(name, dir_fd=top)
                try:
                    _empty(folder, top, names)
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    Path(path).rmdir()


def _remove_if_empty(path: Path) -> bool:
    """Remove a folder that is empty or holds only an empty tmp, as most tasks leave it."""
    try:
        with contextlib.suppress(FileNotFoundError):
            (path / "tmp").rmdir()
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _empty(folder: int, top: int, names: Iterator[str]) -> list[str]:
    """Remove the files in `folder` and move its folders to `top`.

    For `top` itself, return up to MAX_FOLDERS_PER_PASS of its folders. No folder is ever listed
    whole: it may have a million entries.
    """
    os.fchown(folder, os.geteuid(), -1)
    os.fchmod(folder, 0o700)
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
                continue
            # Only root can open a folder without read permission.
            make_private(entry.name, dir_fd=folder)
            if folder != top:
                os.rename(entry.name, next(names), src_dir_fd=folder, dst_dir_fd=top)
                continue
            folders.append(entry.name)
            if len(folders) == MAX_FOLDERS_PER_PASS:
                break
    return folders
