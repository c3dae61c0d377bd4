"""Unpacks the bundle of an attempt into the folder in which it will run.

The archive is untrusted, so no link is followed: every file is created new, relative to the
descriptor of an open folder. Files and folders belong to the user of the attempt, and get fixed
modes: readable, and executable if the archive says so; no other mode bits are taken over.
"""

import errno
import hashlib
import os
from collections.abc import Callable
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from duly.agent.preparation import workspace
from duly.agent.preparation.safe_open import open_folder
from duly.agent.preparation.task_users import User
from duly.errors import Invalid
from duly.model.archives.bundle import MAX_ENTRIES, bundle_error, quote_name
from duly.model.archives.tar import CHUNK_BYTES, Entry, Tar, decompressed

NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

CLASH_ERRORS = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP)


class Abandoned(Exception):
    """No attempt waits for the bundle any more."""


def unpack(
    file: Path,
    sha256: str,
    folder: str,
    user: User | None,
    *,
    most_bytes: int,
    is_unwanted: Callable[[], bool],
) -> None:
    """Unpack a file with the expected SHA-256 into a new folder, which is removed on failure.

    The hash is computed over the very bytes that were unpacked. Raises Damaged if it differs or the
    file is missing, even if the archive is also invalid: that is not its owner's fault then.
    """
    try:
        raw = FileIO(str(file))
    except FileNotFoundError:
        raise Damaged from None
    with raw, BufferedReader(hashed := HashingReader(raw), CHUNK_BYTES) as archive:
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
    """Extract `archive` into `folder`, for `user`.

    Raises Invalid, with a message for the client, if the archive cannot be accepted. The folder
    belongs to the agent until extraction is complete, so that no task can interfere with it.
    """
    with UnpackTarget(folder, user) as place:
        tar = Tar(decompressed(archive), most_bytes=most_bytes)
        for entry in tar:
            _make(place, entry, tar, is_unwanted)
    if user is not None:
        os.chown(folder, *user)


class Damaged(Exception):
    """The file is missing or has the wrong hash."""


class HashingReader(RawIOBase):
    """A file reader that hashes the bytes read so far."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into `buffer`, and hash them."""
        count = self._file.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        return count

    def check(self, sha256: str) -> None:
        """Read to the end; raises Damaged if the hash of the whole file is not `sha256`."""
        rest = bytearray(CHUNK_BYTES)
        while self.readinto(rest):
            pass
        if self._digest.hexdigest() != sha256:
            raise Damaged


def _make(place: "UnpackTarget", entry: Entry, tar: Tar, is_unwanted: Callable[[], bool]) -> None:
    if is_unwanted():
        raise Abandoned
    try:
        if entry.is_folder:
            place.enter(entry.parts)
            return
        with place.new_file(entry) as file:
            for chunk in tar.data():
                if is_unwanted():
                    raise Abandoned
                file.write(chunk)
    except OSError as error:
        if error.errno not in CLASH_ERRORS:
            raise
        name = quote_name("/".join(entry.parts))
        raise bundle_error(f"{name} occurs twice, or both as a file and as a folder.") from None


class UnpackTarget:
    """The destination folder, and a stack of open folders down to the current one."""

    def __init__(self, folder: str, user: User | None) -> None:
        self._user = user
        self._made = 0
        self._names: list[str] = []
        self._folders = [open_folder(folder)]

    def __enter__(self) -> "UnpackTarget":
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
        """Change to a folder, create it if it is missing, and return its descriptor."""
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
        """Create a file that did not exist, and open it for writing."""
        above = self.enter(entry.parts[:-1])
        fd = os.open(entry.parts[-1], NEW_FILE_FLAGS, 0o600, dir_fd=above)
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
        # One file may create as many folders as its path is deep, without entries of their own.
        self._made += 1
        if self._made > MAX_ENTRIES:
            raise bundle_error(f"it has more than {MAX_ENTRIES} folders.")
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
