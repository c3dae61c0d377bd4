"""Opens files in folders that tasks can write to, without trusting anything in them.

While processes of a task live, its folder may hold symbolic links that lead elsewhere, FIFOs
without a writer, files with a lease that blocks an open, and hard links to files of other users;
and each may be swapped for another between check and use. So everything is opened relative to the
descriptor of a folder, beneath it, through no link, on the same file system and without blocking,
and only regular files with a single hard link are read.
"""

import ctypes
import errno
import os
import stat
from functools import cache
from pathlib import PurePosixPath

OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_PATH_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For traversing a folder or changing its mode, neither of which needs read permission."""
OPEN_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

SYS_OPENAT2 = 437
RESOLVE_NO_XDEV, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x01, 0x04, 0x08
NO_OPENAT2_ERRORS = (errno.ENOSYS, errno.EPERM)
"""Returned for openat2 by kernels before 5.6 and by container seccomp filters without it."""


class OpenHow(ctypes.Structure):
    """The `struct open_how` argument of openat2."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


OPEN_HOW = OpenHow(OPEN_FILE_FLAGS, 0, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH)


class NotRegularFile(OSError):
    """The path is not a regular file with a single hard link."""


def open_folder(name: str, *, dir_fd: int | None = None) -> int:
    """Return the descriptor of a folder; a symbolic link to one is refused."""
    return os.open(name, OPEN_FOLDER_FLAGS, dir_fd=dir_fd)


def make_private(name: str, *, dir_fd: int) -> None:
    """Restrict a folder to its owner, even if the owner could not open it until now."""
    place = os.open(name, OPEN_PATH_FLAGS, dir_fd=dir_fd)
    try:
        # By the descriptor, not by the name: chmod follows links. And not by a Path, which would
        # intern the names of a million folders that may be here.
        os.chmod(f"/proc/self/fd/{place}", 0o700)  # noqa: PTH101
    finally:
        os.close(place)


def read_file(folder: str, path: str, limit: int) -> bytes:
    """Return up to `limit` bytes from the start of a regular file beneath `folder`.

    Raises NotRegularFile if it is not such a file, and OSError if it does not exist or cannot be
    reached without leaving the folder.
    """
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or path.startswith("/"):
        raise NotRegularFile(errno.EXDEV, "It leads out of the folder.")
    top = os.open(folder, OPEN_PATH_FLAGS)
    try:
        fd = open_beneath(top, parts)
    finally:
        os.close(top)
    try:
        found = os.fstat(fd)
        # With a second hard link it may be the file of another user.
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise NotRegularFile(errno.EINVAL, "It is no regular file with a single name.")
        return os.read(fd, limit)
    finally:
        os.close(fd)


def open_beneath(top: int, parts: tuple[str, ...]) -> int:
    """Open a file beneath `top`, crossing no link or mount, non-blocking; no part may be `..`."""
    path = os.fsencode("/".join(parts))
    fd: int = _libc().syscall(
        SYS_OPENAT2, top, path, ctypes.byref(OPEN_HOW), ctypes.sizeof(OPEN_HOW)
    )
    if fd >= 0:
        return fd
    error = ctypes.get_errno()
    if error in NO_OPENAT2_ERRORS:
        return open_by_parts(top, parts)
    raise OSError(error, os.strerror(error))


def open_by_parts(top: int, parts: tuple[str, ...]) -> int:
    """Do the same as `open_beneath` without openat2, one folder after the other."""
    *folders, name = parts
    device = os.fstat(top).st_dev
    at = os.dup(top)
    try:
        for folder in folders:
            above, at = at, os.open(folder, OPEN_PATH_FLAGS, dir_fd=at)
            os.close(above)
        fd = os.open(name, OPEN_FILE_FLAGS, dir_fd=at)
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
