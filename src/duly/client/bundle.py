"""Packs a folder for a task to bring along, so that equal folders make equal bundles.

Names are sorted, and times and owners left out; of the modes only whether a file can be
executed is kept. So the hash tells whether a server has it, and most submits send nothing.
"""

import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from duly.errors import Invalid
from duly.model.bundle import MOST_BYTES, MOST_ENTRIES, refuse, say, split_name
from duly.model.tar import Tar, plain

CHUNK = 1024 * 1024
LEFT_OUT = frozenset({".git", "__pycache__"})
"""What tools keep beside files: large, or new each time, and of no use to a task."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """An archive, as it is sent."""

    file: Path
    sha256: str
    size: int


@contextmanager
def packed(path: str | Path) -> Iterator[Bundle]:
    """Give the bundle of a folder, or of a tar archive as it is; raises Invalid for all else."""
    source = Path(path)
    try:
        if not source.is_dir():
            yield _check(source)
            return
        with tempfile.NamedTemporaryFile(prefix="duly-bundle-") as made:
            _pack(source, made.file)
            yield _measure(Path(made.name))
    except Invalid as error:
        if error.field != "bundle":
            raise
        raise Invalid("bundle", f"{say(str(path))} cannot be sent: {error.message}") from None


def _check(file: Path) -> Bundle:
    """Look at all entries of an archive, so that a person hears now what a node would say."""
    try:
        with file.open("rb") as archive:
            for _ in Tar(plain(archive)):
                pass
        return _measure(file)
    except OSError as error:
        raise refuse(f"{error.strerror or error}.") from None


def _measure(file: Path) -> Bundle:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return Bundle(file, digest, opened.tell())


def _pack(folder: Path, target: IO[bytes]) -> None:
    count = size = 0
    with (
        # No name and no time in the header: they would differ each time.
        gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, file in _walk(folder, ""):
            count, size = count + 1, size + _add(archive, name, file)
            if count > MOST_ENTRIES:
                raise refuse(f"It has more than {MOST_ENTRIES} entries.")
            if size > MOST_BYTES:
                raise refuse(f"Its files have more than {MOST_BYTES} bytes together.")
    target.flush()


def _walk(folder: Path, above: str) -> Iterator[tuple[str, Path]]:
    """Yield all that is in a folder, in the order of the names, each folder before its content."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - the names alone are wanted
    except OSError as error:
        raise _unreadable(above or ".", error) from None
    for one in names:
        if one in LEFT_OUT:
            continue
        name, path = f"{above}{one}", folder / one
        yield name, path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, f"{name}/")


def _add(archive: tarfile.TarFile, name: str, path: Path) -> int:
    split_name(name)
    info = tarfile.TarInfo(name)
    try:
        if path.is_symlink():
            raise refuse(
                f"{say(name)} is a symbolic link; a bundle holds files and folders only. "
                "To send what links lead to, pack it yourself, with tar --dereference."
            )
        if path.is_dir():
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(info)
            return 0
        if not path.is_file():
            raise refuse(f"{say(name)} is neither a file nor a folder.")
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            info.size, info.mode = found.st_size, 0o755 if found.st_mode & 0o100 else 0o644
            archive.addfile(info, file)
            return info.size
    except OSError as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: OSError) -> Invalid:
    why = error.strerror or "it became shorter meanwhile"
    return refuse(f"{say(name)} cannot be packed: {why}.")
