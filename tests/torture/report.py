"""Writes the report of a run: Markdown for people, JSON for programs, and a timeline."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.torture import timeline
from tests.torture.run_result import Finding, Recovery, RunResult

MAX_SHOWN_VIOLATIONS = 50
"""The number of violations in the Markdown report; the JSON has all of them."""
FILES = ("report.json", "report.md", "timeline.svg")
EXCUSED = "A late recovery of a node is excused while servers or the database had a fault, too.\n\n"
Key = tuple[str, str, float]


def write(run: RunResult, folder: Path) -> None:
    """Write report.json, report.md and timeline.svg."""
    contents = (json.dumps(as_json(run), indent=1) + "\n", as_text(run), timeline.draw(run))
    for name, text in zip(FILES, contents, strict=True):
        (folder / name).write_text(text)


def as_json(run: RunResult) -> dict[str, Any]:
    """Return the whole run, with a summary of the recoveries."""
    fields = {**asdict(run), "is_good": run.is_good}
    return {**fields, "recovery_times": summaries(run.recoveries)}


def as_text(run: RunResult) -> str:
    """Return the report as Markdown."""
    return "\n\n".join(
        [
            f"# {'Good' if run.is_good else 'NOT GOOD'}: {summary(run)}",
            f"Seed {run.seed}, commit {run.commit}, {run.seconds / 60:.1f} minutes. "
            "![timeline](timeline.svg)",
            "## Calls of clients\n\n" + _table(("call", "times"), run.calls.items()),
            "## Faults\n\n" + _table(("fault", "times", "seconds in all"), _faults(run)),
            "## Recovery times, in seconds\n\n" + EXCUSED + _recoveries(run.recoveries),
            "## Violations\n\n" + _violations(run.violations),
        ]
    )


def summary(run: RunResult) -> str:
    """Return the summary in one sentence."""
    return (
        f"{run.tasks:,} tasks, {len(run.episodes)} faults, {len(run.violations)} violations,"
        f" {len(run.late)} of {len(run.recoveries)} recoveries too late"
    )


def summaries(recoveries: Iterable[Recovery]) -> list[dict[str, Any]]:
    """Return the median, the 99th percentile and the maximum of the recovery times, by fault."""
    groups: defaultdict[Key, list[float]] = defaultdict(list)
    excused: Counter[Key] = Counter()
    for recovery in recoveries:
        key = recovery.fault, recovery.clock, recovery.target
        excused[key] += recovery.excuse is not None
        groups[key].append(math.inf if recovery.took is None else recovery.took)
    return [
        {
            "fault": fault,
            "clock": clock,
            "count": len(values),
            "excused": excused[fault, clock, target],
            "p50": percentile(values, 0.5),
            "p99": percentile(values, 0.99),
            "max": _finite(max(values)),
            "target": target,
        }
        for (fault, clock, target), values in sorted(groups.items())
    ]


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that `share` of all do not exceed; None means never."""
    ordered = sorted(values)
    return _finite(ordered[max(math.ceil(len(ordered) * share), 1) - 1])


def _finite(value: float) -> float | None:
    return round(value, 2) if math.isfinite(value) else None


def _faults(run: RunResult) -> list[tuple[Any, ...]]:
    durations: defaultdict[str, list[float]] = defaultdict(list)
    for episode in run.episodes:
        durations[episode.fault].append(episode.healed - episode.began)
    return [
        (name, len(seconds), f"{sum(seconds):.0f}") for name, seconds in sorted(durations.items())
    ]


def _recoveries(recoveries: Iterable[Recovery]) -> str:
    header = ("fault", "clock", "count", "excused", "p50", "p99", "max", "target")
    rows = [
        [("never" if row[name] is None else row[name]) for name in header]
        for row in summaries(recoveries)
    ]
    return _table(header, rows)


def _violations(violations: Sequence[Finding]) -> str:
    if not violations:
        return "None.\n"
    lines = [
        "\n".join([f"- {violation.message}", *_indented(violation.steps)])
        for violation in violations[:MAX_SHOWN_VIOLATIONS]
    ]
    remaining = len(violations) - len(lines)
    return "\n".join([*lines, *([f"- and {remaining} more"] if remaining else [])]) + "\n"


def _indented(steps: Sequence[str]) -> list[str]:
    """Return lines as a code block within a list item."""
    return ["", *(f"      {step}" for step in steps), ""] if steps else []


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)
