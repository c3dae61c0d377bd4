"""Sets the clock of a running program, with libfaketime.

Only the time of day is set, as a person or NTP would: durations (CLOCK_MONOTONIC and
CLOCK_BOOTTIME) go on as they are.
"""

from collections.abc import Sequence
from pathlib import Path

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
RIGHT = "+0"
SHARED = Path("/dev/shm")


def are_settable() -> bool:
    """Say whether libfaketime is here."""
    return bool(LIBRARIES)


class Clock:
    """The clock of one program, in a file that it reads again every second."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(RIGHT)
        self._file.chmod(0o644)

    def around(self, args: Sequence[str]) -> list[str]:
        """Return the command that runs `args` by this clock."""
        if not are_settable():
            return list(args)
        _sweep()
        settings = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        # Not in the environment of whatever changes the user on the way: the library's shared
        # memory would belong to root.
        return ["env", *(f"{name}={value}" for name, value in settings.items()), *args]

    def set(self, offset: str) -> None:
        """Set it off by so much from now on: `+1h`, `-5`, `+0`."""
        new = self._file.with_suffix(".new")
        new.write_text(offset + "\n")
        new.chmod(0o644)
        new.rename(self._file)


def _sweep() -> None:
    """Remove what the library left of processes that were killed; their pids come back."""
    for file in SHARED.glob("*faketime_s*m_*"):
        pid = file.name.rpartition("_")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            file.unlink(missing_ok=True)
