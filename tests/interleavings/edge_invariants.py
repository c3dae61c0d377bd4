"""Invariants of dependencies."""

from collections.abc import Callable, Iterator

from tests.interleavings.evidence import Evidence


def _is_met(condition: str, status: str) -> bool:
    return condition == "always" or (condition == "success") == (status == "done")


def every_dependency_is_stored(evidence: Evidence) -> Iterator[str]:
    stored = {(row["dependant_id"], row["upstream_id"], row["condition"]) for row in evidence.edges}
    for _, spec, task, _ in evidence.acknowledged.submits:
        for dependency in spec.depends_on:
            if (task, int(dependency.task), dependency.on) not in stored:
                yield f"the dependency of task {task} on {dependency.task} is not stored"


def no_task_starts_before_its_dependencies_are_met(evidence: Evidence) -> Iterator[str]:
    ended = evidence.ended_tasks()
    dependencies: dict[int, list[tuple[int, str]]] = {}
    for row in evidence.edges:
        dependencies.setdefault(row["dependant_id"], []).append(
            (row["upstream_id"], row["condition"])
        )
    for position, lease in evidence.leases():
        for upstream, condition in dependencies.get(lease["id"], ()):
            if ended.get(upstream, 2**62) > position:
                yield f"task {lease['id']} was leased before {upstream} ended"
            elif not _is_met(condition, evidence.ends[upstream]["status"]):
                status = evidence.ends[upstream]["status"]
                yield f"task {lease['id']} was leased on {condition} of {upstream}, {status}"


def no_task_waits_for_an_ended_upstream(evidence: Evidence) -> Iterator[str]:
    for upstream in evidence.unresolved:
        yield f"the end of {upstream} was not passed on to its downstream tasks"
    open_edges: dict[int, int] = {}
    for row in evidence.edges:
        dependant, upstream = row["dependant_id"], row["upstream_id"]
        if dependant not in evidence.live:
            continue
        if upstream not in evidence.ends:
            open_edges[dependant] = open_edges.get(dependant, 0) + 1
        elif not _is_met(row["condition"], evidence.ends[upstream]["status"]):
            yield f"task {dependant} can never run because of {upstream}, and is live"
    for task, row in evidence.live.items():
        if row["blocked_by"] != open_edges.get(task, 0):
            yield f"task {task} is blocked by {row['blocked_by']}, not {open_edges.get(task, 0)}"
        if row["status"] != "paused" and (row["status"] == "blocked") != (task in open_edges):
            count = open_edges.get(task, 0)
            yield f"task {task} is {row['status']}, and has {count} open dependencies"


def a_task_that_cannot_run_names_its_upstream(evidence: Evidence) -> Iterator[str]:
    edges = {(row["dependant_id"], row["upstream_id"]): row["condition"] for row in evidence.edges}
    for task, end in evidence.ends.items():
        code = (end["reason"] or {}).get("code")
        if code not in ("upstream_failed", "upstream_succeeded"):
            continue
        upstream = int(end["reason"]["details"]["upstream"])
        condition = edges.get((task, upstream))
        if condition is None or upstream not in evidence.ends:
            yield f"task {task} ended because of {upstream}, on which it does not depend"
        elif _is_met(condition, evidence.ends[upstream]["status"]):
            yield f"task {task} ended because of {upstream}, whose condition was met"


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    every_dependency_is_stored,
    no_task_starts_before_its_dependencies_are_met,
    no_task_waits_for_an_ended_upstream,
    a_task_that_cannot_run_names_its_upstream,
]
