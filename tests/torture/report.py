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

SHOWN = 50
"""How many violations are written out for people; all of them are in the JSON."""
FILES = ("report.json", "report.md", "timeline.svg")
EXCUSED = (
    "Excused is a node that came back late while servers or the database had a fault, too.\n\n"
)
Key = tuple[str, str, float]


def write(run: RunResult, folder: Path) -> None:
    """Write report.json, report.md and timeline.svg."""
    told = (json.dumps(as_json(run), indent=1) + "\n", as_text(run), timeline.draw(run))
    for name, text in zip(FILES, told, strict=True):
        (folder / name).write_text(text)


def as_json(run: RunResult) -> dict[str, Any]:
    """Return the whole run, with the recoveries summed up."""
    fields = {**asdict(run), "is_good": run.is_good}
    return {**fields, "recovery_times": summaries(run.recoveries)}


def as_text(run: RunResult) -> str:
    """Return the report as Markdown."""
    return "\n\n".join(
        [
            f"# {'Good' if run.is_good else 'NOT GOOD'}: {verdict(run)}",
            f"Seed {run.seed}, commit {run.commit}, {run.seconds / 60:.1f} minutes. "
            "![timeline](timeline.svg)",
            "## What clients were told\n\n" + _table(("call", "times"), run.calls.items()),
            "## Faults\n\n" + _table(("fault", "times", "seconds in all"), _faults(run)),
            "## Recovery times, in seconds\n\n" + EXCUSED + _recoveries(run.recoveries),
            "## Violations\n\n" + _violations(run.violations),
        ]
    )


def verdict(run: RunResult) -> str:
    """Return the one sentence that matters."""
    return (
        f"{run.tasks:,} tasks, {len(run.episodes)} faults, {len(run.violations)} violations,"
        f" {len(run.late)} of {len(run.recoveries)} recoveries too late"
    )


def summaries(recoveries: Iterable[Recovery]) -> list[dict[str, Any]]:
    """Return the median, the 99th percentile and the worst of each fault's recoveries."""
    groups: defaultdict[Key, list[float]] = defaultdict(list)
    excused: Counter[Key] = Counter()
    for one in recoveries:
        key = one.fault, one.clock, one.target
        excused[key] += one.excuse is not None
        groups[key].append(math.inf if one.took is None else one.took)
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
    """Return the smallest value that `share` of all do not exceed; None stands for never."""
    ordered = sorted(values)
    return _finite(ordered[max(math.ceil(len(ordered) * share), 1) - 1])


def _finite(value: float) -> float | None:
    return round(value, 2) if math.isfinite(value) else None


def _faults(run: RunResult) -> list[tuple[Any, ...]]:
    spans: defaultdict[str, list[float]] = defaultdict(list)
    for one in run.episodes:
        spans[one.fault].append(one.healed - one.began)
    return [(name, len(each), f"{sum(each):.0f}") for name, each in sorted(spans.items())]


def _recoveries(recoveries: Iterable[Recovery]) -> str:
    head = ("fault", "clock", "count", "excused", "p50", "p99", "max", "target")
    rows = [
        [("never" if row[name] is None else row[name]) for name in head]
        for row in summaries(recoveries)
    ]
    return _table(head, rows)


def _violations(violations: Sequence[Finding]) -> str:
    if not violations:
        return "None.\n"
    lines = ["\n".join([f"- {one.message}", *_indented(one.steps)]) for one in violations[:SHOWN]]
    left = len(violations) - len(lines)
    return "\n".join([*lines, *([f"- and {left} more"] if left else [])]) + "\n"


def _indented(steps: Sequence[str]) -> list[str]:
    """Return lines as a block of code within an item of a list."""
    return ["", *(f"      {step}" for step in steps), ""] if steps else []


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)
