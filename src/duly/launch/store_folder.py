"""The folder that is the object store: the logs and artifacts of all tenants, for servers alone.

Like a data folder of PostgreSQL, one that is made here or empty is closed to others, and one that
is in use and open to them is refused. It is not closed by itself then: it may be a folder that
somebody else needs, named by mistake. A group may have access, for whoever has set up one.
"""

import os
import shlex
import stat
from pathlib import Path

from duly.errors import ConfigError
from duly.private_file import make_folder
from duly.server.logbook import folder_of

OTHERS = stat.S_IRWXO


def prepare(store_url: str) -> None:
    """Make the folder if it is not there; raises ConfigError if others can get into it."""
    folder = folder_of(store_url)
    if folder is None:
        return
    try:
        make_folder(folder)
        if not is_open(folder):
            return
        status = folder.stat()
        if status.st_uid == os.geteuid() and not any(folder.iterdir()):
            folder.chmod(stat.S_IMODE(status.st_mode) & ~OTHERS)
            return
    except OSError as error:
        raise ConfigError(
            f"Cannot use {folder}: {error.strerror}. Choose another folder with --store."
        ) from error
    raise ConfigError(
        f"Everybody on this machine can get into {folder}, where the logs and artifacts of all "
        f"tenants are. Close it with `{how_to_close(folder)}`, or choose another folder with "
        "--store."
    )


def is_open(folder: Path) -> bool:
    """Say whether others have any access to `folder`, and can come as far as it."""
    found = folder.resolve()
    is_reached = all(above.stat().st_mode & stat.S_IXOTH for above in found.parents)
    return is_reached and bool(found.stat().st_mode & OTHERS)


def how_to_close(folder: Path) -> str:
    """Return the command that leaves owner and group what they have, and others nothing."""
    return f"chmod o-rwx {shlex.quote(str(folder))}"
