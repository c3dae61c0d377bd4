"""Invariants of operations on whole graphs: cancel, pause and resume."""

from collections.abc import Callable, Iterator
from typing import Any

from tests.interleavings.evidence import Evidence

NEVER = 2**62


def _wishes(seen: Evidence) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield where in the journal a wish was made, moved on or done, and which it was."""
    for row in seen.journal:
        if row["what"] == "graph_operations":
            yield row["seq"], row["op"], row["new"] or row["old"]


def _done(seen: Evidence, kind: str) -> Iterator[tuple[int, int, int]]:
    """Yield (graph, from where, to where) it was so: all of it paused, or cancelled."""
    for place, op, wish in _wishes(seen):
        if op == "delete" and wish["kind"] == kind:
            graph = wish["graph_id"]
            later = (at for at, _, one in _wishes(seen) if one["graph_id"] == graph and at > place)
            yield graph, place, min(later, default=NEVER)


def nothing_of_a_paused_graph_starts(seen: Evidence) -> Iterator[str]:
    for kind in ("pause", "cancel"):
        for graph, since, until in _done(seen, kind):
            for place, lease in seen.leases():
                if lease["id"] in seen.told.alone and kind == "pause":
                    continue
                if lease["id"] in seen.graphs[graph] and since < place < until:
                    yield f"task {lease['id']} was leased after the {kind} of graph {graph}"


def what_runs_when_its_graph_is_cancelled_ends_so(seen: Evidence) -> Iterator[str]:
    ended = seen.ended_tasks()
    for graph, since, _ in _done(seen, "cancel"):
        for task in seen.graphs[graph]:
            if task not in seen.ends:
                yield f"task {task} of the cancelled graph {graph} is live"
            elif ended[task] > since and seen.ends[task]["status"] != "cancelled":
                yield f"task {task} of the cancelled graph {graph} ended otherwise"


def every_wish_is_carried_out(seen: Evidence) -> Iterator[str]:
    last = {wish["graph_id"]: (op, wish["kind"]) for _, op, wish in _wishes(seen)}
    for graph, tasks in seen.graphs.items():
        op, kind = last.get(graph, ("delete", None))
        if op != "delete":
            yield f"the {kind} of graph {graph} was given up"
        for task in (tasks & seen.live.keys()) - seen.told.alone:
            row = seen.live[task]
            if (row["status"] == "paused", row["is_paused"]) != ((kind == "pause",) * 2):
                yield f"task {task} is {row['status']} after the {kind} of graph {graph}"


def what_was_told_to_be_done_was(seen: Evidence) -> Iterator[str]:
    done = {wish["id"]: place for place, op, wish in _wishes(seen) if op == "delete"}
    for told in seen.told_of("wished"):
        if done.get(told.about, NEVER) > told.place:
            yield f"wish {told.about} was told to be done, and was not"


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    nothing_of_a_paused_graph_starts,
    what_runs_when_its_graph_is_cancelled_ends_so,
    every_wish_is_carried_out,
    what_was_told_to_be_done_was,
]
