"""The results of a run as a value, from which table, chart and JSON are made."""

from collections.abc import Sequence

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


def added(new: Measured, earlier: Measured, order: Sequence[str]) -> Measured:
    """Return `new` with what an earlier run has measured of other parts.

    Every part stands beside its own limit, so they need not be of one run; but of one machine
    and one commit they must be.
    """
    if msgspec.structs.replace(earlier.machine, at=new.machine.at) != new.machine:
        raise ValueError("the earlier figures are of another machine, or of another commit")
    fresh = {figure.part for figure in new.figures} | new.failures.keys()
    kept = [figure for figure in earlier.figures if figure.part not in fresh]
    failures = {part: why for part, why in earlier.failures.items() if part not in fresh}
    figures = sorted([*kept, *new.figures], key=lambda figure: order.index(figure.part))
    return Measured(machine=new.machine, figures=figures, failures=failures | new.failures)
