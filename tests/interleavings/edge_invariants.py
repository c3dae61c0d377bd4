"""Invariants of dependencies."""

from collections.abc import Callable, Iterator

from tests.interleavings.evidence import Evidence


def _is_met(condition: str, status: str) -> bool:
    return condition == "always" or (condition == "success") == (status == "done")


def every_dependency_is_stored(seen: Evidence) -> Iterator[str]:
    stored = {(row["dependant_id"], row["upstream_id"], row["condition"]) for row in seen.edges}
    for _, spec, task, _ in seen.told.submits:
        for one in spec.depends_on:
            if (task, int(one.task), one.on) not in stored:
                yield f"task {task} was to wait for {one.task}, and does not"


def nothing_starts_before_its_upstreams_ended_as_asked(seen: Evidence) -> Iterator[str]:
    ended = seen.ended_tasks()
    waits: dict[int, list[tuple[int, str]]] = {}
    for row in seen.edges:
        waits.setdefault(row["dependant_id"], []).append((row["upstream_id"], row["condition"]))
    for place, lease in seen.leases():
        for upstream, condition in waits.get(lease["id"], ()):
            if ended.get(upstream, 2**62) > place:
                yield f"task {lease['id']} was leased before {upstream} ended"
            elif not _is_met(condition, seen.ends[upstream]["status"]):
                status = seen.ends[upstream]["status"]
                yield f"task {lease['id']} was leased on {condition} of {upstream}, {status}"


def nothing_waits_for_what_has_ended(seen: Evidence) -> Iterator[str]:
    for upstream in seen.untold:
        yield f"nobody was told that {upstream} has ended"
    left: dict[int, int] = {}
    for row in seen.edges:
        dependant, upstream = row["dependant_id"], row["upstream_id"]
        if dependant not in seen.live:
            continue
        if upstream not in seen.ends:
            left[dependant] = left.get(dependant, 0) + 1
        elif not _is_met(row["condition"], seen.ends[upstream]["status"]):
            yield f"task {dependant} can never run, for {upstream}, and is live"
    for task, row in seen.live.items():
        if row["blocked_by"] != left.get(task, 0):
            yield f"task {task} is blocked by {row['blocked_by']}, not {left.get(task, 0)}"
        if row["status"] != "paused" and (row["status"] == "blocked") != (task in left):
            yield f"task {task} is {row['status']}, and waits for {left.get(task, 0)}"


def a_task_that_never_runs_says_for_whom(seen: Evidence) -> Iterator[str]:
    edges = {(row["dependant_id"], row["upstream_id"]): row["condition"] for row in seen.edges}
    for task, end in seen.ends.items():
        code = (end["reason"] or {}).get("code")
        if code not in ("upstream_failed", "upstream_succeeded"):
            continue
        upstream = int(end["reason"]["details"]["upstream"])
        condition = edges.get((task, upstream))
        if condition is None or upstream not in seen.ends:
            yield f"task {task} ended for {upstream}, for which it did not wait"
        elif _is_met(condition, seen.ends[upstream]["status"]):
            yield f"task {task} ended for {upstream}, which ended as it should"


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    every_dependency_is_stored,
    nothing_starts_before_its_upstreams_ended_as_asked,
    nothing_waits_for_what_has_ended,
    a_task_that_never_runs_says_for_whom,
]
