"""What came of a run, as a value: what is told, drawn and kept is made from it."""

import msgspec

from benchmarks.machine import Machine
from duly.bench.figure import Figure


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run."""

    machine: Machine
    figures: list[Figure]
    failures: dict[str, str]
    """What went wrong, by part: a task that was lost, or a part that could not be measured."""

    @property
    def is_right(self) -> bool:
        """Say whether all tasks ended, each exactly once; targets are another matter."""
        return not self.failures
