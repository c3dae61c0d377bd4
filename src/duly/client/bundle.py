"""Packs a folder into a reproducible tar archive, so that equal folders make equal bundles.

Entries are sorted by name, times and owners are left out, and of the mode only the executable bit
is kept. The hash tells whether a server already has the bundle, so most submits upload nothing.
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
from duly.model.archives.bundle import (
    MAX_ENTRIES,
    MAX_UNPACKED_BYTES,
    bundle_error,
    quote_name,
    split_name,
)
from duly.model.archives.tar import Tar, decompressed
from duly.model.wording import format_bytes

CHUNK_BYTES = 1024 * 1024
EXCLUDED_NAMES = frozenset({".git", "__pycache__"})
"""Files of tools that are large or change every time, and are of no use to a task."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """An archive to upload."""

    file: Path
    sha256: str
    size: int


@contextmanager
def packed_bundle(path: str | Path) -> Iterator[Bundle]:
    """Yield the bundle of a folder, or of a tar archive as it is; raises Invalid otherwise."""
    source = Path(path)
    try:
        if not source.is_dir():
            yield _check(source)
            return
        with tempfile.NamedTemporaryFile(prefix="duly-bundle-") as temporary:
            _pack(source, temporary.file)
            yield _measure(Path(temporary.name))
    except Invalid as error:
        if error.field != "bundle":
            raise
        raise Invalid(
            "bundle", f"{quote_name(str(path))} cannot be sent: {error.problem}"
        ) from None


@contextmanager
def data_bundle(data: bytes) -> Iterator[Bundle]:
    """Yield data as a file to upload."""
    with tempfile.NamedTemporaryFile(prefix="duly-data-") as temporary:
        temporary.write(data)
        temporary.flush()
        yield Bundle(Path(temporary.name), hashlib.sha256(data).hexdigest(), len(data))


def _check(file: Path) -> Bundle:
    """Check every entry of an archive here, so that the user sees the error before a node does."""
    try:
        with file.open("rb") as archive:
            for _ in Tar(decompressed(archive)):
                pass
        return _measure(file)
    except OSError as error:
        raise bundle_error(f"{error.strerror or error}.") from None


def _measure(file: Path) -> Bundle:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return Bundle(file, digest, opened.tell())


def _pack(folder: Path, target: IO[bytes]) -> None:
    count = size = 0
    with (
        # No name and no time in the gzip header: they would differ each time.
        gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, file in _walk(folder, ""):
            count, size = count + 1, size + _add(archive, name, file)
            if count > MAX_ENTRIES:
                raise bundle_error(f"it has more than {MAX_ENTRIES} files and folders.")
            if size > MAX_UNPACKED_BYTES:
                raise bundle_error(
                    f"its files have more than {format_bytes(MAX_UNPACKED_BYTES)} in total."
                )
    target.flush()


def _walk(folder: Path, above: str) -> Iterator[tuple[str, Path]]:
    """Yield the entries of a folder recursively, sorted by name, folders before their content."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - the names alone are wanted
    except OSError as error:
        raise _unreadable(above or ".", error) from None
    for entry in names:
        if entry in EXCLUDED_NAMES:
            continue
        name, path = f"{above}{entry}", folder / entry
        yield name, path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, f"{name}/")


def _add(archive: tarfile.TarFile, name: str, path: Path) -> int:
    split_name(name)
    info = tarfile.TarInfo(name)
    try:
        if path.is_symlink():
            raise bundle_error(
                f"{quote_name(name)} is a symbolic link; a bundle holds files and folders only. "
                "To include the targets of links, pack it yourself with tar --dereference."
            )
        if path.is_dir():
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(info)
            return 0
        if not path.is_file():
            raise bundle_error(f"{quote_name(name)} is neither a file nor a folder.")
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            info.size, info.mode = stat.st_size, 0o755 if stat.st_mode & 0o100 else 0o644
            archive.addfile(info, file)
            return info.size
    except OSError as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: OSError) -> Invalid:
    why = error.strerror or "it was truncated while being read"
    return bundle_error(f"{quote_name(name)} cannot be packed: {why}.")
