"""Bundles that this node has fetched, kept for the next attempts of the same tenant.

A file has the name of what it holds, in a folder of its tenant, and is written beside that name
and renamed when it is whole; so whatever happens to us, what is there under a name is all of
it. That it still is what it was, whoever unpacks it finds out as he reads.
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

MOST_BYTES = 2 * 1024**3
SHARE = 10
"""The whole disk has to be this much larger than what is kept."""
PART = ".part"


def room_on(disk: Path) -> int:
    """Return how many bytes of bundles may be kept on a disk."""
    return min(MOST_BYTES, shutil.disk_usage(disk).total // SHARE)


@dataclass(slots=True)
class Arrival:
    """A bundle of which a part is here."""

    target: Path
    size: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    mark: str = field(default_factory=lambda: secrets.token_hex(4))
    """Nobody else writes to a file of this name, not even one who was told to stop."""

    @property
    def _part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.{self.mark}{PART}")

    def add(self, data: bytes) -> None:
        """Write what comes next."""
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
        """Give it its name, if it is what was asked for."""
        if self.digest.hexdigest() != self.target.name:
            self.drop()
            return False
        if not self.size:
            self.add(b"")
        self._part.rename(self.target)
        return True

    def drop(self) -> None:
        """Let go of what has come, to begin again or not."""
        _remove(self._part)
        self.size, self.digest = 0, hashlib.sha256()


class BundleCache:
    """The folder of all that is kept."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        """Held while it is looked at whether a bundle is needed or here, and until it is gone."""
        folder.mkdir(mode=0o700, exist_ok=True)
        for part in folder.glob(f"*/*{PART}"):
            _remove(part)

    def path_of(self, tenant: int, sha256: str) -> Path:
        """Return where a bundle of a tenant is, if it is here."""
        check_sha256(sha256, "artifact")
        return self._folder / str(int(tenant)) / sha256

    def use(self, path: Path) -> bool:
        """Say whether a bundle is here, which then counts as used just now."""
        with self._lock, contextlib.suppress(OSError):
            os.utime(path)
            return True
        return False

    def trim(self, is_needed: Callable[[Path], bool], most_bytes: int | None = None) -> bool:
        """Remove what was used longest ago until the rest fits, but nothing that is needed.

        Whoever wants a bundle says so before `use`: then it stays, or is not here any more.
        Returns whether it does fit; into `most_bytes`, or all that may be kept.
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
            if path.suffix != PART:
                with self._lock:
                    if not is_needed(path):
                        self.remove(path)
                        total -= size
        return total <= most

    def remove(self, path: Path) -> None:
        """Keep a bundle no longer."""
        _remove(path)


def _remove(path: Path) -> None:
    # What cannot be removed now is in nobody's way.
    with contextlib.suppress(OSError):
        path.unlink()
