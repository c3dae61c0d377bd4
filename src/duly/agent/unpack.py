"""Unpacks the bundle of an attempt into the folder in which it will run.

The archive may be anybody's work, so nothing in it is followed: each file is made new, below a
folder that was opened before, by its descriptor and without links. What is made belongs to the
user of the attempt, and can be read and perhaps executed; no other mode is taken over.
"""

import errno
import gzip
import os
import zlib
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from duly.agent.users import User
from duly.model.bundle import refuse, say
from duly.model.tar import Entry, Source, Tar

GZIP = b"\x1f\x8b"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

CLASHES = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP)


class Unwanted(Exception):
    """Nobody waits for the bundle any more."""


def unpack(
    archive: BufferedReader,
    folder: str,
    user: User | None,
    *,
    most_bytes: int,
    is_unwanted: Callable[[], bool] = lambda: False,
) -> None:
    """Make `folder`, and in it all that is in `archive`, for `user`.

    Raises Invalid, with a sentence for the client, for what cannot be accepted. The folder is
    ours alone until all is there, so that nobody can reach into what is half made.
    """
    Path(folder).mkdir(mode=0o700)
    try:
        with Place(folder, user) as place:
            tar = Tar(_open(archive), most_bytes=most_bytes)
            for entry in tar:
                _make(place, entry, tar, is_unwanted)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise refuse("It is a damaged gzip archive.") from None
    if user is not None:
        os.chown(folder, *user)


def _open(archive: BufferedReader) -> Source:
    is_gzip = archive.peek(len(GZIP))[: len(GZIP)] == GZIP
    return gzip.GzipFile(fileobj=archive, mode="rb") if is_gzip else archive


def _make(place: "Place", entry: Entry, tar: Tar, is_unwanted: Callable[[], bool]) -> None:
    if is_unwanted():
        raise Unwanted
    try:
        if entry.is_folder:
            place.enter(entry.parts)
            return
        with place.new_file(entry) as file:
            for chunk in tar.data():
                if is_unwanted():
                    raise Unwanted
                file.write(chunk)
    except OSError as error:
        if error.errno not in CLASHES:
            raise
        name = say("/".join(entry.parts))
        raise refuse(f"{name} is in it twice, or both as a file and as a folder.") from None


class Place:
    """The folder that is filled, and the folders in it that lead to where we are."""

    def __init__(self, folder: str, user: User | None) -> None:
        self._user = user
        self._names: list[str] = []
        self._folders = [os.open(folder, FOLDER)]

    def __enter__(self) -> "Place":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for fd in self._folders:
            os.close(fd)

    def enter(self, parts: tuple[str, ...]) -> int:
        """Go to a folder, made if it is not there, and return its descriptor."""
        known = 0
        while known < min(len(parts), len(self._names)) and parts[known] == self._names[known]:
            known += 1
        while len(self._names) > known:
            self._names.pop()
            os.close(self._folders.pop())
        for part in parts[known:]:
            self._folders.append(self._folder(part, self._folders[-1]))
            self._names.append(part)
        return self._folders[-1]

    def new_file(self, entry: Entry) -> BinaryIO:
        """Open a file that was not there, for its bytes."""
        above = self.enter(entry.parts[:-1])
        fd = os.open(entry.parts[-1], NEW_FILE, 0o600, dir_fd=above)
        file = os.fdopen(fd, "wb")
        try:
            self._hand_over(fd, 0o755 if entry.is_executable else 0o644)
        except BaseException:
            file.close()
            raise
        return file

    def _folder(self, name: str, above: int) -> int:
        try:
            os.mkdir(name, 0o700, dir_fd=above)
        except FileExistsError:
            return os.open(name, FOLDER, dir_fd=above)
        fd = os.open(name, FOLDER, dir_fd=above)
        try:
            self._hand_over(fd, 0o755)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _hand_over(self, fd: int, mode: int) -> None:
        if self._user is not None:
            os.fchown(fd, *self._user)
        os.fchmod(fd, mode)
