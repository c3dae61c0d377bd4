"""Part of invariant 9: the graph of a fire time is stored completely, in one transaction."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.torture.database_dump import GraphRow
from tests.torture.evidence import Evidence
from tests.torture.journal import Step
from tests.torture.schedule_history import ScheduleHistory, fire_at

Edges = set[tuple[str, str, str]]
"""(downstream ref, upstream ref, condition)."""


def incomplete_graphs(evidence: Evidence, schedule: ScheduleHistory) -> Iterator[str]:
    """Yield graphs with missing or extra tasks, or with tasks of another transaction."""
    for claim in schedule.claims:
        row, version = (
            schedule.occurrence_by_fire_time.get(fire_at(claim)),
            schedule.version_at(claim.seq),
        )
        if row is None or row.result_text is None or version is None:
            continue
        template = version.row.get("graph")
        if (template is None) != (row.graph_id is None):
            yield f"{row.fire_at} became {row.result_text}, which is not its template"
        elif row.graph_id is not None:
            graph = evidence.graphs.get(row.graph_id)
            if graph is None:
                yield f"{row.result_text} of {row.fire_at} does not exist"
            else:
                yield from _violations(evidence, graph, template, claim)


def _violations(
    evidence: Evidence, graph: GraphRow, template: Mapping[str, Any], claim: Step
) -> Iterator[str]:
    template_edges = _template_edges(template)
    stored = {
        row.ref or "": row.id
        for task in graph.task_ids
        if (row := evidence.tasks.get(task)) is not None and row.graph_id == graph.id
    }
    if missing := sorted(template_edges.keys() - stored.keys()):
        yield f"the graph {graph.id} lacks {', '.join(missing)}"
    if len(graph.task_ids) > len(template_edges) or stored.keys() - template_edges.keys():
        yield f"the graph {graph.id} has more tasks than the template"
    for ref, task in stored.items():
        first = next(iter(evidence.steps_by_task.get(task, ())), None)
        if first is None or first.xid != claim.xid:
            yield f"{ref} of the graph {graph.id} was not stored in the transaction of its claim"
    names = {task: ref for ref, task in stored.items()}
    expected = {
        (ref, upstream, on)
        for ref, upstreams in template_edges.items()
        for upstream, on in upstreams.items()
    }
    if lost := expected - _stored_edges(evidence, names):
        for ref, upstream, _ in sorted(lost):
            yield f"the dependency of {ref} of the graph {graph.id} on {upstream} is not stored"


def _template_edges(template: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the upstreams and conditions of each task of a template, by ref."""
    return {
        task["ref"]: {edge["task"]: edge["on"] for edge in task.get("depends_on") or ()}
        for task in template["tasks"]
    }


def _stored_edges(evidence: Evidence, names: Mapping[int, str]) -> Edges:
    return {
        (names[edge.dependant_id], names[edge.upstream_id], edge.condition)
        for task in names
        for edge in evidence.edges.get(task, ())
        if edge.upstream_id in names
    }
