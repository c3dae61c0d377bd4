"""Part of invariant 9: the graph of a fire time is stored completely, in one transaction."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.torture.database_dump import GraphRow
from tests.torture.evidence import Evidence
from tests.torture.journal import Step
from tests.torture.schedule_history import ScheduleHistory, fire_at

Edges = set[tuple[str, str, str]]
"""Who waits for whom, by their refs, and how that must end."""


def wholes(evidence: Evidence, life: ScheduleHistory) -> Iterator[str]:
    """Yield what is missing of graphs, or too much, or came by another transaction."""
    for claim in life.claims:
        row, version = life.became.get(fire_at(claim)), life.version_at(claim.seq)
        if row is None or row.led_to is None or version is None:
            continue
        template = version.row.get("graph")
        if (template is None) != (row.graph_id is None):
            yield f"{row.fire_at} became {row.led_to}, which the schedule does not say"
        elif row.graph_id is not None:
            graph = evidence.graphs.get(row.graph_id)
            if graph is None:
                yield f"{row.led_to} of {row.fire_at} does not exist"
            else:
                yield from _wrong(evidence, graph, template, claim)


def _wrong(
    evidence: Evidence, graph: GraphRow, template: Mapping[str, Any], claim: Step
) -> Iterator[str]:
    asked = _asked(template)
    stored = {
        row.ref or "": row.id
        for task in graph.task_ids
        if (row := evidence.tasks.get(task)) is not None and row.graph_id == graph.id
    }
    if missing := sorted(asked.keys() - stored.keys()):
        yield f"the graph {graph.id} is without its {', '.join(missing)}"
    if len(graph.task_ids) > len(asked) or stored.keys() - asked.keys():
        yield f"the graph {graph.id} has more tasks than the schedule says"
    for ref, task in stored.items():
        first = next(iter(evidence.paths.get(task, ())), None)
        if first is None or first.xid != claim.xid:
            yield f"{ref} of the graph {graph.id} was not stored with its fire time"
    names = {task: ref for ref, task in stored.items()}
    wanted = {(ref, one, on) for ref, ones in asked.items() for one, on in ones.items()}
    if lost := wanted - _inner(evidence, names):
        for ref, one, _ in sorted(lost):
            yield f"{ref} of the graph {graph.id} was to wait for {one}, which is not stored"


def _asked(template: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return what each task of a template waits for, by their refs."""
    return {
        task["ref"]: {one["task"]: one["on"] for one in task.get("depends_on") or ()}
        for task in template["tasks"]
    }


def _inner(evidence: Evidence, names: Mapping[int, str]) -> Edges:
    return {
        (names[edge.dependant_id], names[edge.upstream_id], edge.condition)
        for task in names
        for edge in evidence.edges.get(task, ())
        if edge.upstream_id in names
    }
