"""Invariants of pausing and resuming tasks, alone or with their graphs."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from tests.interleavings.evidence import Evidence

PAUSES = ("paused", "pause_requested")
Step = tuple[int, datetime, dict[str, Any], dict[str, Any]]


def _steps(seen: Evidence) -> Iterator[Step]:
    """Yield (place, time, old, new) of every change of a live task."""
    for row in seen.journal:
        if row["what"] == "live" and row["op"] == "update":
            yield row["seq"], row["at"], row["old"], row["new"]


def _marked(seen: Evidence, *, paused: bool) -> Iterator[Step]:
    """Yield the steps that paused a task, or those that resumed one."""
    for step in _steps(seen):
        if (step[2]["is_paused"], step[3]["is_paused"]) == (not paused, paused):
            yield step


def nothing_that_is_paused_waits_or_starts(seen: Evidence) -> Iterator[str]:
    for _, _, old, new in _steps(seen):
        if old["is_paused"] and old["status"] != "running" and new["status"] == "running":
            yield f"task {new['id']} was leased while it was paused"
        if new["status"] != "running" and new["is_paused"] != (new["status"] == "paused"):
            yield f"task {new['id']} is {new['status']}, and paused is {new['is_paused']}"


def only_a_pause_pauses_and_only_a_resume_resumes(seen: Evidence) -> Iterator[str]:
    for paused, kinds in ((True, PAUSES), (False, ("resumed",))):
        steps = Counter(new["id"] for *_, new in _marked(seen, paused=paused))
        noted = Counter(row["task_id"] for row in seen.events if row["kind"] in kinds)
        if steps != noted:
            yield f"{kinds[-1]}: {dict(steps)}, but noted was {dict(noted)}"


def every_pause_says_by_whom_or_what(seen: Evidence) -> Iterator[str]:
    for row in seen.events:
        if row["kind"] in PAUSES and row["details"].keys() not in ({"by"}, {"graph"}):
            yield f"the pause of {row['task_id']} says {row['details']}"


def what_was_told_to_be_paused_was(seen: Evidence) -> Iterator[str]:
    for op, paused in (("paused", True), ("resumed", False)):
        places: dict[int, int] = {}
        for place, _, _, new in _marked(seen, paused=paused):
            places.setdefault(new["id"], place)
        for told in seen.told_of(op):
            if told.value and places.get(told.about, 2**62) > told.place:
                yield f"task {told.about} was told to be {op}, and was not"


def a_pause_gives_nothing_back(seen: Evidence) -> Iterator[str]:
    """It adds its own time to start_by, not what the task had waited before it."""
    since: dict[int, datetime] = {}
    for _, at, old, new in _steps(seen):
        if new["status"] == "paused" and old["status"] not in ("paused", "running"):
            since[new["id"]] = at
        is_free = old["status"] == "paused" and not old["blocked_by"]
        if not is_free or new["is_paused"]:
            continue
        ready_at = datetime.fromisoformat(old["ready_at"])
        if ready_at < since.get(new["id"], ready_at):
            yield f"task {new['id']} was given back what it had waited before its pause"


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    nothing_that_is_paused_waits_or_starts,
    only_a_pause_pauses_and_only_a_resume_resumes,
    every_pause_says_by_whom_or_what,
    what_was_told_to_be_paused_was,
    a_pause_gives_nothing_back,
]
