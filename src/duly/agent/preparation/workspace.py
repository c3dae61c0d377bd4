"""The folder in which an attempt runs: made for it, its own, and gone after it.

While a task lives, its folder is hostile ground. So nothing is opened there but with
`duly.agent.safe_open`.
"""

import contextlib
import itertools
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from duly.agent.safe_open import make_private, open_folder, read_file
from duly.agent.users import User
from duly.wire import Input

RESULT = "result.json"
SCRIPT = "script"
NO_INPUTS = "no-inputs"
"""The folder that all those look into who have no inputs."""
FALLBACK = Path("/var/lib/duly")
FULL = 64 * 1024
"""Bytes: a disk on which less is left is full."""
MAX_FOLDERS = 1000
"""How many folders are emptied before it is looked for more."""


def root(data: Path, mark: str, *, shared: bool) -> Path:
    """Return the folder of all workspaces: in `data` if tasks can get there.

    `shared` says that tasks run as other users than the agent, who must be able to pass
    through every folder above.
    """
    inside = data / "work"
    if not shared or all(_is_open(folder) for folder in (data, *data.parents)):
        return inside
    return FALLBACK / f"work-{mark}"


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def make_root(path: Path) -> None:
    """Make the folder of all workspaces; others may pass through it, and not look around."""
    if path.parent == FALLBACK:
        make_fallback()
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o711)
    (path / NO_INPUTS).mkdir(exist_ok=True)
    (path / NO_INPUTS).chmod(0o555)


def make_fallback() -> None:
    """Make the folder outside of the agent's own, and let tasks through, whatever made it first."""
    FALLBACK.mkdir(parents=True, exist_ok=True)
    FALLBACK.chmod(0o755)


def remove_root(path: Path) -> None:
    """Leave no folder of ours outside of the agent's own, unless something is left in it."""
    if path.parent == FALLBACK:
        with contextlib.suppress(OSError):
            path.rmdir()


def make(path: str, user: User | None, source: str) -> None:
    """Make the workspace for `user`, with the script `source` in it.

    One without a script is made where tasks are started (`duly.agent.spawner`).
    """
    Path(path).mkdir(mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(f"{path}/{SCRIPT}", flags, 0o700)
    with os.fdopen(fd, "wb") as file:
        file.write(source.encode())
        if user is not None:
            os.fchown(file.fileno(), *user)
    if user is not None:
        os.chown(path, *user)


def write_inputs(folder: str, results: Sequence[Input]) -> None:
    """Write results of upstreams into a folder of ours, which is made if it is not there.

    Nobody but us can enter it, and nothing in it can be changed by whom it is shown to later.
    """
    Path(folder).mkdir(mode=0o700, exist_ok=True)
    top = open_folder(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        for one in results:
            fd = os.open(f"{one.name}.json", flags, 0o400, dir_fd=top)
            with os.fdopen(fd, "wb") as file:
                file.write(one.result)
                os.fchmod(fd, 0o444)
    finally:
        os.close(top)


def show_inputs(folder: str, user: User | None) -> None:
    """Let a task look into the folder of its inputs, and nobody else."""
    if user is None:
        Path(folder).chmod(0o500)
    else:
        os.chown(folder, -1, user.gid)
        Path(folder).chmod(0o550)


def read_result(path: str, limit: int) -> bytes | None:
    """Return what the task left as its result; None if it left none.

    Of one that is too large there is a byte more than `limit`, and of one that is no plain file
    there is no byte: enough to tell.
    """
    try:
        return read_file(path, RESULT, limit + 1) or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return b""


def is_full(path: str) -> bool:
    """Say whether nothing more can be written to the disk that the workspace is on."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    # A file system that counts no files says that it has none.
    return found.f_bavail * found.f_frsize < FULL or (found.f_files > 0 and found.f_favail == 0)


def remove(path: str) -> None:
    """Remove a folder and all that is in it, however deep, and follow no link out of it.

    Folders are moved up to the top before they are emptied, so that neither the depth of the
    tree nor the length of its paths matters. Nothing of the attempt runs any more, but it may
    have let others in; so every folder is made ours alone before anything in it is looked at.
    """
    if _remove_bare(Path(path)):
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


def _remove_bare(path: Path) -> bool:
    """Remove a folder in which nothing or only an empty tmp is, as most tasks leave it."""
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

    Of `top` itself, return folders that are in it: some, if there are very many. Neither they nor
    files, of which there may be a million, are ever listed whole.
    """
    os.fchown(folder, os.geteuid(), -1)
    os.fchmod(folder, 0o700)
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
                continue
            # A folder that may not be read cannot be opened, but by root.
            make_private(entry.name, dir_fd=folder)
            if folder != top:
                os.rename(entry.name, next(names), src_dir_fd=folder, dst_dir_fd=top)
                continue
            folders.append(entry.name)
            if len(folders) == MAX_FOLDERS:
                break
    return folders
