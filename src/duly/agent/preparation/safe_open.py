"""Opens what lies in folders that tasks can write to, and falls for nothing they put there.

As long as anything of a task lives, its folder may hold links that lead elsewhere, pipes that
nobody writes to, files with a lease that blocks whoever opens them, and names of files that are
not the task's at all; and each may be exchanged for another while it is looked at. So nothing is
opened there but by the descriptor of a folder, beneath it, through no link and into no other
file system, without waiting, and only regular files are read that have no second name.
"""

import ctypes
import errno
import os
import stat
from functools import cache
from pathlib import PurePosixPath

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""To go on from or to change the mode of, for which a folder need not be readable."""
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

SYS_OPENAT2 = 437
RESOLVE_NO_XDEV, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x01, 0x04, 0x08
REFUSED_BY_SANDBOX = (errno.ENOSYS, errno.EPERM)
"""What a kernel before 5.6 says to openat2, and a container's filter that does not know it."""


class OpenHow(ctypes.Structure):
    """The argument of openat2 that says how."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


HOW = OpenHow(FILE, 0, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH)


class NotPlain(OSError):
    """There is something else than a regular file with a single name."""


def open_folder(name: str, *, dir_fd: int | None = None) -> int:
    """Return the descriptor of a folder; a link to one is none."""
    return os.open(name, FOLDER, dir_fd=dir_fd)


def make_private(name: str, *, dir_fd: int) -> None:
    """Let only its owner into a folder, even if that one could not be opened until now."""
    place = os.open(name, PLACE, dir_fd=dir_fd)
    try:
        # By what is open, not by its name: a mode follows links. And not by a Path, which would
        # intern every name, of a million folders that may be here.
        os.chmod(f"/proc/self/fd/{place}", 0o700)  # noqa: PTH101
    finally:
        os.close(place)


def read_file(folder: str, path: str, limit: int) -> bytes:
    """Return up to `limit` bytes from the start of a regular file beneath `folder`.

    Raises NotPlain for what is no such file, and OSError for what is not there or cannot be
    reached without leaving the folder.
    """
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or path.startswith("/"):
        raise NotPlain(errno.EXDEV, "It leads out of the folder.")
    top = os.open(folder, PLACE)
    try:
        fd = open_beneath(top, parts)
    finally:
        os.close(top)
    try:
        found = os.fstat(fd)
        # A second name may be somebody else's file.
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise NotPlain(errno.EINVAL, "It is no regular file with a single name.")
        return os.read(fd, limit)
    finally:
        os.close(fd)


def open_beneath(top: int, parts: tuple[str, ...]) -> int:
    """Open a file beneath a folder, without links, mounts and waiting; no part may be `..`."""
    path = os.fsencode("/".join(parts))
    fd: int = _libc().syscall(SYS_OPENAT2, top, path, ctypes.byref(HOW), ctypes.sizeof(HOW))
    if fd >= 0:
        return fd
    error = ctypes.get_errno()
    if error in REFUSED_BY_SANDBOX:
        return open_by_parts(top, parts)
    raise OSError(error, os.strerror(error))


def open_by_parts(top: int, parts: tuple[str, ...]) -> int:
    """Do the same where there is no openat2: one folder after the other."""
    *folders, name = parts
    device = os.fstat(top).st_dev
    at = os.dup(top)
    try:
        for folder in folders:
            above, at = at, os.open(folder, PLACE, dir_fd=at)
            os.close(above)
        fd = os.open(name, FILE, dir_fd=at)
        if os.fstat(fd).st_dev != device:
            os.close(fd)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return fd
    finally:
        os.close(at)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.POINTER(OpenHow),
        ctypes.c_size_t,
    )
    libc.syscall.restype = ctypes.c_long
    return libc
