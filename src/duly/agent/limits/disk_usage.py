"""Adds up what a folder holds, without following a link out of it or opening a file in it.

The folder belongs to a task, which may be changing it meanwhile: every folder is opened by the
descriptor of the one above it, and what vanishes or cannot be entered is passed over.
"""

# Spawners import this, and no more than they must.

import os
import stat
from typing import NamedTuple

MAX_FILES = 250_000
"""Entries that are counted. More would take seconds, each time."""
MAX_DEPTH = 200
"""Folders within folders that are counted, each of which takes an open descriptor."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
BLOCK = 512


class DiskUsage(NamedTuple):
    """What was found in a folder."""

    size: int
    """Bytes on disk of everything in it."""
    largest: int
    """The length of its longest file."""
    is_countable: bool = True
    """False if it has more entries, or deeper ones, than are counted."""

    def exceeds(self, limit: int) -> bool:
        """Tell whether it is more than `limit` bytes; a limit of 0 is none."""
        return limit > 0 and (max(self.size, self.largest) > limit or not self.is_countable)


def measure(path: str) -> DiskUsage:
    """Add up what is in the folder `path`."""
    count = Count()
    try:
        top = os.open(path, FOLDER)
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
                below = os.open(folders.pop(), FOLDER, dir_fd=folder)
            except OSError:
                continue
            stack.append((below, count.add_entries(below)))
    finally:
        for folder, _ in stack:
            os.close(folder)
    return DiskUsage(count.size, count.largest, count.entries <= MAX_FILES)


class Count:
    """What has been found so far."""

    def __init__(self) -> None:
        self.size = self.largest = self.entries = 0
        self._linked: set[tuple[int, int]] = set()

    def add_entries(self, folder: int) -> list[str]:
        """Count what is in an open folder, and return the names of the folders in it."""
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
                # A file of several names takes its room once.
                if (found.st_dev, found.st_ino) in self._linked:
                    return
                self._linked.add((found.st_dev, found.st_ino))
        self.size += found.st_blocks * BLOCK
