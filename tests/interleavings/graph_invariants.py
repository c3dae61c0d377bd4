"""Invariants of operations on whole graphs: cancel, pause and resume."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.interleavings.evidence import Evidence

NEVER = 2**62


def _operations(evidence: Evidence) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the position, the kind of change and the row of every change of an operation."""
    for row in evidence.journal:
        if row["what"] == "graph_operations":
            yield row["seq"], row["op"], row["new"] or row["old"]


def _completed(evidence: Evidence, kind: str) -> Iterator[tuple[int, int, int]]:
    """Yield (graph, from, to): the positions between which an operation was complete."""
    for position, op, operation in _operations(evidence):
        if op == "delete" and operation["kind"] == kind:
            graph = operation["graph_id"]
            later = (
                at
                for at, _, other in _operations(evidence)
                if other["graph_id"] == graph and at > position
            )
            yield graph, position, min(later, default=NEVER)


def no_task_of_a_paused_graph_starts(evidence: Evidence) -> Iterator[str]:
    for kind in ("pause", "cancel"):
        for graph, since, until in _completed(evidence, kind):
            for position, lease in evidence.leases():
                if lease["id"] in evidence.acknowledged.paused_alone and kind == "pause":
                    continue
                if lease["id"] in evidence.graphs[graph] and since < position < until:
                    yield f"task {lease['id']} was leased after the {kind} of graph {graph}"


def tasks_of_a_cancelled_graph_end_cancelled(evidence: Evidence) -> Iterator[str]:
    ended = evidence.ended_tasks()
    for graph, since, _ in _completed(evidence, "cancel"):
        for task in evidence.graphs[graph]:
            if task not in evidence.ends:
                yield f"task {task} of the cancelled graph {graph} is live"
            elif ended[task] > since and evidence.ends[task]["status"] != "cancelled":
                yield f"task {task} of the cancelled graph {graph} ended otherwise"


def every_operation_is_completed(evidence: Evidence) -> Iterator[str]:
    last = {
        operation["graph_id"]: (op, operation["kind"]) for _, op, operation in _operations(evidence)
    }
    for graph, tasks in evidence.graphs.items():
        op, kind = last.get(graph, ("delete", None))
        if op != "delete":
            yield f"the {kind} of graph {graph} was not completed"
        for task in (tasks & evidence.live.keys()) - evidence.acknowledged.paused_alone:
            row = evidence.live[task]
            if (row["status"] == "paused", row["is_paused"]) != ((kind == "pause",) * 2):
                yield f"task {task} is {row['status']} after the {kind} of graph {graph}"


def an_acknowledged_operation_is_complete(evidence: Evidence) -> Iterator[str]:
    done = {
        operation["id"]: position
        for position, op, operation in _operations(evidence)
        if op == "delete"
    }
    for answer in evidence.answers_to("graph operation"):
        if done.get(answer.subject, NEVER) > answer.position:
            yield f"operation {answer.subject} was acknowledged as complete, and was not"


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    no_task_of_a_paused_graph_starts,
    tasks_of_a_cancelled_graph_end_cancelled,
    every_operation_is_completed,
    an_acknowledged_operation_is_complete,
]
