"""Unpacks the bundle of an attempt into the folder in which it will run.

The archive may be anybody's work, so nothing in it is followed: each file is made new, below a
folder that was opened before, by its descriptor and without links. What is made belongs to the
user of the attempt, and can be read and perhaps executed; no other mode is taken over.
"""

import errno
import hashlib
import os
from collections.abc import Callable
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from duly.agent import workspace
from duly.agent.safe_open import open_folder
from duly.agent.users import User
from duly.errors import Invalid
from duly.model.bundle import MOST_ENTRIES, refuse, say
from duly.model.tar import CHUNK, Entry, Tar, plain

NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

CLASHES = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP)


class Unwanted(Exception):
    """Nobody waits for the bundle any more."""


def unpack(
    file: Path,
    sha256: str,
    folder: str,
    user: User | None,
    *,
    most_bytes: int,
    is_unwanted: Callable[[], bool],
) -> None:
    """Unpack a file that should have this SHA-256 into a new folder; none is left if that fails.

    The hash is of the very bytes that were unpacked. Raises Damaged when it is another, or when
    there is no file: then whatever else is wrong with it is not its owner's fault.
    """
    try:
        raw = FileIO(str(file))
    except FileNotFoundError:
        raise Damaged from None
    with raw, BufferedReader(hashed := Hashed(raw), CHUNK) as archive:
        Path(folder).mkdir(mode=0o700)
        try:
            try:
                fill(archive, folder, user, most_bytes=most_bytes, is_unwanted=is_unwanted)
            except Invalid:
                hashed.check(sha256)
                raise
            hashed.check(sha256)
        except BaseException:
            workspace.remove(folder)
            raise


def fill(
    archive: "BufferedReader[Any]",
    folder: str,
    user: User | None,
    *,
    most_bytes: int,
    is_unwanted: Callable[[], bool] = lambda: False,
) -> None:
    """Make all that is in `archive` in `folder`, for `user`.

    Raises Invalid, with a sentence for the client, for what cannot be accepted. The folder is
    ours alone until all is there, so that nobody can reach into what is half made.
    """
    with Place(folder, user) as place:
        tar = Tar(plain(archive), most_bytes=most_bytes)
        for entry in tar:
            _make(place, entry, tar, is_unwanted)
    if user is not None:
        os.chown(folder, *user)


class Damaged(Exception):
    """The file does not hold what it should."""


class Hashed(RawIOBase):
    """A file, and the hash of what was read of it."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what comes next."""
        count = self._file.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        return count

    def check(self, sha256: str) -> None:
        """Read to the end; raises Damaged if the whole has another hash than `sha256`."""
        rest = bytearray(CHUNK)
        while self.readinto(rest):
            pass
        if self._digest.hexdigest() != sha256:
            raise Damaged


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
        self._made = 0
        self._names: list[str] = []
        self._folders = [open_folder(folder)]

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
            return open_folder(name, dir_fd=above)
        # A name of a file makes up to as many as it is deep, which no entry counts for.
        self._made += 1
        if self._made > MOST_ENTRIES:
            raise refuse(f"It has more than {MOST_ENTRIES} folders.")
        fd = open_folder(name, dir_fd=above)
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
