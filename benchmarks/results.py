"""The results of a benchmark run; the table, the chart and the JSON file are made from them."""

from collections.abc import Sequence

import msgspec

from benchmarks.machine import Machine
from duly.bench.figure import Figure


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run, the machine, and the parts that failed."""

    machine: Machine
    figures: list[Figure]
    failures: dict[str, str]
    """Errors by part: a task was lost or ran twice, or the part could not be measured."""

    @property
    def is_valid(self) -> bool:
        """Return True if every task ended exactly once, whether or not targets were met."""
        return not self.failures


def merge(new: Results, earlier: Results, order: Sequence[str]) -> Results:
    """Return `new` with the earlier results of the parts that it lacks.

    Every part is compared with its own limit, so parts may come from different runs, but only of
    one commit on one machine.
    """
    if msgspec.structs.replace(earlier.machine, at=new.machine.at) != new.machine:
        raise ValueError("the earlier results are of another machine or another commit")
    new_parts = {figure.part for figure in new.figures} | new.failures.keys()
    kept = [figure for figure in earlier.figures if figure.part not in new_parts]
    failures = {part: why for part, why in earlier.failures.items() if part not in new_parts}
    figures = sorted([*kept, *new.figures], key=lambda figure: order.index(figure.part))
    return Results(machine=new.machine, figures=figures, failures=failures | new.failures)
