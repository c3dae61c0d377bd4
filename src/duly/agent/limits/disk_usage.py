"""Measures the disk usage of a folder, without following links out of it or opening files in it.

The folder belongs to a task that may be changing it meanwhile: every subfolder is opened relative
to the descriptor of its parent, and entries that vanish or cannot be entered are skipped.
"""

# Spawners import this, and no more than they must.

import os
import stat
from typing import NamedTuple

MAX_FILES = 250_000
"""Entries that are counted. More would take seconds per measurement."""
MAX_DEPTH = 200
"""Levels of nested folders that are counted; each level takes an open descriptor."""
OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
BLOCK_BYTES = 512


class DiskUsage(NamedTuple):
    """The disk usage of a folder."""

    size: int
    """Bytes on disk of all entries."""
    largest: int
    """Length in bytes of the longest file."""
    is_countable: bool = True
    """False if the folder has more than MAX_FILES entries, or is nested deeper than MAX_DEPTH."""

    def exceeds(self, limit: int) -> bool:
        """Return True if the usage is over `limit` bytes or not countable; 0 means no limit."""
        return limit > 0 and (max(self.size, self.largest) > limit or not self.is_countable)


def measure(path: str) -> DiskUsage:
    """Return the disk usage of the folder `path`."""
    count = UsageCounter()
    try:
        top = os.open(path, OPEN_FOLDER_FLAGS)
    except OSError:
        return DiskUsage(0, 0)
    stack = [(top, count.add_entries(top))]
    try:
        while stack:
            folder, folders = stack[-1]
            if not folders:
                os.close(folder)
                stack.pop()
                continue
            if len(stack) >= MAX_DEPTH or count.entries > MAX_FILES:
                return DiskUsage(count.size, count.largest, is_countable=False)
            try:
                below = os.open(folders.pop(), OPEN_FOLDER_FLAGS, dir_fd=folder)
            except OSError:
                continue
            stack.append((below, count.add_entries(below)))
    finally:
        for folder, _ in stack:
            os.close(folder)
    return DiskUsage(count.size, count.largest, count.entries <= MAX_FILES)


class UsageCounter:
    """The running total of a measurement."""

    def __init__(self) -> None:
        self.size = self.largest = self.entries = 0
        self._linked: set[tuple[int, int]] = set()

    def add_entries(self, folder: int) -> list[str]:
        """Count the entries of an open folder, and return the names of its subfolders."""
        folders = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self.entries += 1
                if self.entries > MAX_FILES:
                    break
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(found.st_mode):
                    folders.append(entry.name)
                self._add(found)
        return folders

    def _add(self, found: os.stat_result) -> None:
        if stat.S_ISREG(found.st_mode):
            self.largest = max(self.largest, found.st_size)
            if found.st_nlink > 1:
                # A file with several hard links takes its space once.
                if (found.st_dev, found.st_ino) in self._linked:
                    return
                self._linked.add((found.st_dev, found.st_ino))
        self.size += found.st_blocks * BLOCK_BYTES
