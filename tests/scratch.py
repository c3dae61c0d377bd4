"""Where a run keeps its files: in memory, if there is room for all of them.

Nothing of them outlives the run. PostgreSQL still writes and calls fsync as always; it only
waits for no disk, and a new database costs a fifth.
"""

import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "duly-tests-"
ROOM = 8 * 2**30


def choose() -> Path | None:
    """Make a folder in memory and let all temporary files go there; None if they go to disk.

    Whoever sets TMPDIR has chosen already: a person, or the run that started this worker.
    """
    if "TMPDIR" in os.environ or not _has_room():
        return None
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))
    # PostgreSQL and tasks run as other users when we are root, and must get through.
    folder.chmod(0o755)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def _has_room() -> bool:
    try:
        memory = os.statvfs(MEMORY)
        available = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return False
    if available is None or memory.f_flag & os.ST_NOEXEC:
        return False
    return min(memory.f_bavail * memory.f_frsize, int(available[1]) * 1024) >= ROOM


def _sweep() -> None:
    """Remove what failed and killed runs have left: memory is dear."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):
            if not Path(f"/proc/{pid}").exists() and folder.stat().st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)
