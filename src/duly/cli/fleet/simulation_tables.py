"""Prints the figures of simulations as tables."""

from collections.abc import Sequence
from datetime import timedelta

from duly.cli.output.tables import print_pairs, print_table
from duly.duration import format_duration
from duly.sim.report import Report

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


def print_comparison(reports: Sequence[Report]) -> None:
    """Print one row for each run."""
    names = tuple(dict.fromkeys(name for report in reports for name in report.waits))
    classes = tuple(f"{name.upper()} P95" for name in names)
    figures = ("NODES", "MISSED", "SLOWDOWN", "MEAN USE", "PEAK USE", "JAIN", *classes)
    print_table(
        ("POLICY", *figures),
        (
            (
                report.policy,
                f"{report.nodes:,}",
                f"{report.missed_tolerances:,}",
                f"{report.mean_bounded_slowdown:.2f}",
                f"{report.utilisation.mean:.1%}",
                f"{report.utilisation.peak:.1%}",
                f"{report.jain:.3f}",
                *(
                    _span(report.waits[name]["p95"]) if name in report.waits else ""
                    for name in names
                ),
            )
            for report in reports
        ),
        right=figures,
    )


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
