"""Prints the figures of simulations as tables."""

from collections.abc import Sequence
from datetime import timedelta

from duly.cli.output.tables import print_pairs, print_table
from duly.duration import format_duration
from duly.sim.report import Report

COLUMNS = ("POLICY", "NODES", "MISSED", "SLOWDOWN", "MEAN USE", "PEAK USE", "JAIN")
MIN_WIDTH = 8
"""The least width of a column of figures: a row is printed before the next one is known."""
FIGURES = ("P50 WAIT", "P95 WAIT", "P99 WAIT")


def print_report(report: Report, max_tenants: int) -> None:
    """Print everything about one run."""
    use = report.utilisation
    print_pairs(
        [
            ("workload", f"{report.workload}, {_span(report.duration)} of arrivals"),
            ("policy", f"{report.policy}, seed {report.seed}"),
            ("nodes", f"{report.nodes:,}"),
            ("tasks", f"{report.tasks:,}{_failures(report)}"),
            ("missed tolerances", f"{report.missed_tolerances:,}{_part(report)}"),
            ("mean bounded slowdown", f"{report.mean_bounded_slowdown:.2f}"),
            (
                "utilisation",
                f"{use.mean:.1%} (trough {use.trough:.1%}, peak {use.peak:.1%})",
            ),
            ("Jain's fairness index", _fairness(report)),
            ("all done after", _span(report.makespan)),
            ("simulated at", f"{report.lives_per_second:,} tasks/s"),
        ]
    )
    print_table(
        ("CLASS", *FIGURES),
        ((name, *map(_span, waits.values())) for name, waits in report.waits.items()),
        right=FIGURES,
    )
    print_table(
        ("TENANT", "TASKS", "SHARE", "P95 WAIT"),
        [
            (name, f"{each.tasks:,}", f"{each.share:.1%}", _span(each.p95_wait))
            for name, each in sorted(report.tenants.items(), key=lambda entry: -entry[1].share)[
                :max_tenants
            ]
        ],
        right=("TASKS", "SHARE", "P95 WAIT"),
    )


class Comparison:
    """A table with a row for each run, which is printed as soon as the run has ended."""

    def __init__(self) -> None:
        self._classes: tuple[str, ...] = ()
        self._columns: tuple[str, ...] = ()

    def print_row(self, report: Report) -> None:
        """Print a run, below the header if it is the first or has other classes of tasks."""
        new = tuple(name for name in report.waits if name not in self._classes)
        if new or not self._columns:
            self._classes += new
            self._columns = (*COLUMNS, *(f"{name.upper()} P95" for name in self._classes))
            self._print(self._columns)
            self._print(["─" * len(column) for column in self._columns])
        waits = [report.waits.get(name) for name in self._classes]
        self._print(
            [
                report.policy,
                f"{report.nodes:,}",
                f"{report.missed_tolerances:,}",
                f"{report.mean_bounded_slowdown:.2f}",
                f"{report.utilisation.mean:.1%}",
                f"{report.utilisation.peak:.1%}",
                f"{report.jain:.3f}",
                *("" if wait is None else _span(wait["p95"]) for wait in waits),
            ]
        )

    def _print(self, cells: Sequence[str]) -> None:
        first, *figures = cells
        widths = [max(len(column), MIN_WIDTH) for column in self._columns[1:]]
        row = [first.ljust(len(COLUMNS[0]))]
        row += [cell.rjust(width) for cell, width in zip(figures, widths, strict=True)]
        print("  ".join(row), flush=True)


def _failures(report: Report) -> str:
    parts = [
        f"{report.failed:,} failed" if report.failed else "",
        f"{report.attempts_lost:,} attempts lost with nodes" if report.attempts_lost else "",
    ]
    told = ", ".join(part for part in parts if part)
    return f" ({told})" if told else ""


def _part(report: Report) -> str:
    return f" ({report.missed_tolerances / report.tasks:.1%})" if report.tasks else ""


def _fairness(report: Report) -> str:
    if not report.contended_windows:
        return "no two tenants were backlogged for a minute"
    return f"{report.jain:.3f} (worst minute {report.worst_jain:.3f})"


def _span(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))
