"""A cache of fetched bundles on disk, per tenant, with least-recently-used eviction.

A file is named after its SHA-256, in a folder of its tenant. It is written to a partial file and
renamed when it is complete, so a crash never leaves an incomplete bundle under its name. Unpacking
verifies the hash again.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duly.model.artifact import check_sha256

MAX_CACHE_BYTES = 2 * 1024**3
DISK_TO_CACHE_RATIO = 10
"""The disk has to be at least this many times as large as the cache."""
PARTIAL_SUFFIX = ".part"


def max_bytes_on(disk: Path) -> int:
    """Return the size limit in bytes of a cache on `disk`."""
    return min(MAX_CACHE_BYTES, shutil.disk_usage(disk).total // DISK_TO_CACHE_RATIO)


@dataclass(slots=True)
class PartialBundle:
    """A partly downloaded bundle."""

    target: Path
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    mark: str = field(default_factory=lambda: secrets.token_hex(4))
    """Makes the file name unique: not even an abandoned download writes to the same file."""

    @property
    def _part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.{self.mark}{PARTIAL_SUFFIX}")

    def add(self, data: bytes) -> None:
        """Append `data` to the partial file."""
        if not self.size:
            self.target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        if not self.size:
            flags |= os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(self._part, flags, 0o600), "wb") as file:
            file.write(data)
        self.digest.update(data)
        self.size += len(data)

    def keep(self) -> bool:
        """Rename the partial file to its target if its hash matches; otherwise drop it."""
        if self.digest.hexdigest() != self.target.name:
            self.drop()
            return False
        if not self.size:
            self.add(b"")
        self._part.rename(self.target)
        return True

    def drop(self) -> None:
        """Remove the partial file and reset, so that the download can begin again."""
        _remove(self._part)
        self.size, self.digest = 0, hashlib.sha256()


class BundleCache:
    """The folder of cached bundles."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        """Makes looking up a bundle, and checking that it is not needed and removing it, atomic."""
        folder.mkdir(mode=0o700, exist_ok=True)
        for part in folder.glob(f"*/*{PARTIAL_SUFFIX}"):
            _remove(part)

    def path_of(self, tenant: int, sha256: str) -> Path:
        """Return the path of a tenant's bundle, whether or not it is cached."""
        check_sha256(sha256, "artifact")
        return self._folder / str(int(tenant)) / sha256

    def use(self, path: Path) -> bool:
        """Return True if a bundle is cached, and mark it as just used."""
        with self._lock, contextlib.suppress(OSError):
            os.utime(path)
            return True
        return False

    def trim(self, is_needed: Callable[[Path], bool], most_bytes: int | None = None) -> bool:
        """Evict the least recently used bundles until the rest fits, but none that is needed.

        A request must count as needing its bundle before it calls `use`: then the bundle either
        stays or `use` returns False. Returns whether the rest fits into `most_bytes`, by default
        the size limit of the cache.
        """
        most = self._most_bytes if most_bytes is None else most_bytes
        found = []
        for path in self._folder.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= most:
                break
            if path.suffix != PARTIAL_SUFFIX:
                with self._lock:
                    if not is_needed(path):
                        self.remove(path)
                        total -= size
        return total <= most

    def remove(self, path: Path) -> None:
        """Evict a bundle."""
        _remove(path)


def _remove(path: Path) -> None:
    # A file that cannot be removed now does no harm.
    with contextlib.suppress(OSError):
        path.unlink()
