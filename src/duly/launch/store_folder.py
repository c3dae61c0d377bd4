"""Checks the permissions of a local object store, which has the logs and artifacts of all tenants.

As with PostgreSQL's data folder, a new or empty folder is made inaccessible to others, and one that
is in use and accessible to others is refused. Its mode is not changed then: it may be another
program's folder, given by mistake. Access by the group is allowed.
"""

import os
import pwd
import shlex
import stat
import tempfile
from pathlib import Path

from duly.errors import ConfigError
from duly.private_file import make_folder
from duly.server.artifacts.store_access import folder_of

OTHERS_MODE = stat.S_IRWXO


def prepare(store_url: str) -> None:
    """Create the folder if it is missing; raises ConfigError if others can access it."""
    folder = folder_of(store_url)
    if folder is None:
        return
    try:
        make_folder(folder)
        if not is_open(folder):
            return
        status = folder.stat()
        if status.st_uid == os.geteuid() and not any(folder.iterdir()):
            folder.chmod(stat.S_IMODE(status.st_mode) & ~OTHERS_MODE)
            return
    except OSError as error:
        raise ConfigError(
            f"Cannot use {folder}: {error.strerror}. Choose another folder with --store."
        ) from error
    raise ConfigError(
        f"Every user of this machine can access {folder}, which has the logs and artifacts of all "
        f"tenants. Choose another folder with --store, or run: {how_to_close(folder)}"
    )


def check_owner(store_url: str, mark: str) -> None:
    """Raise ConfigError if the store's folder was written by another system user.

    The files of a server are readable by its user alone, so another server could not read them.
    """
    folder = folder_of(store_url)
    if folder is None:
        return
    owner = (folder / mark).stat().st_uid
    if owner in (os.geteuid(), _owner_of_new_files(folder)):
        return
    raise ConfigError(
        f"The object store {folder} belongs to {user_name(owner)}, and this server runs as "
        f"{user_name(os.geteuid())}: neither could read what the other writes. Run all servers "
        f"as the same system user, or stop them and change the owner with 'chown -R'."
    )


def _owner_of_new_files(folder: Path) -> int:
    """Return the owner that a file of ours gets, which a shared file system may map."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_uid


def user_name(uid: int) -> str:
    """Return a user's name for messages."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (user id {uid})"
    except KeyError:
        return f"user id {uid}"


def is_open(folder: Path) -> bool:
    """Return True if others have any access to `folder` and can traverse its parents."""
    resolved = folder.resolve()
    is_reachable = all(parent.stat().st_mode & stat.S_IXOTH for parent in resolved.parents)
    return is_reachable and bool(resolved.stat().st_mode & OTHERS_MODE)


def how_to_close(folder: Path) -> str:
    """Return the command that removes the access of others."""
    return f"chmod o-rwx {shlex.quote(str(folder))}"
