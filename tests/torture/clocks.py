"""Sets the clock of a running program, with libfaketime.

Only the time of day changes, as by a person or NTP: CLOCK_MONOTONIC and CLOCK_BOOTTIME are not
affected.
"""

from collections.abc import Sequence
from pathlib import Path

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
NO_OFFSET = "+0"
SHARED_MEMORY = Path("/dev/shm")


def are_settable() -> bool:
    """Return True if libfaketime is installed."""
    return bool(LIBRARIES)


class Clock:
    """The clock of one program, whose offset is in a file that is read every second."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(NO_OFFSET)
        self._file.chmod(0o644)

    def wrap(self, args: Sequence[str]) -> list[str]:
        """Return the command that runs `args` with this clock."""
        if not are_settable():
            return list(args)
        _sweep()
        settings = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        # Set only after the user was changed: otherwise the library's shared memory would belong
        # to root.
        return ["env", *(f"{name}={value}" for name, value in settings.items()), *args]

    def set(self, offset: str) -> None:
        """Set the offset from now on: `+1h`, `-5`, `+0`."""
        new = self._file.with_suffix(".new")
        new.write_text(offset + "\n")
        new.chmod(0o644)
        new.rename(self._file)


def _sweep() -> None:
    """Remove the shared memory of killed processes, whose pids may be reused."""
    for file in SHARED_MEMORY.glob("*faketime_s*m_*"):
        pid = file.name.rpartition("_")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            file.unlink(missing_ok=True)
