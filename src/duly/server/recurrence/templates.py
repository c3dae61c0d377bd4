"""Validates what a schedule submits when it is created, and completes it when it fires."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from duly.errors import Invalid, TooLarge
from duly.model.requests.graph_request import GraphRequest, graph_name, tasks_with_defaults
from duly.model.requests.schedule_request import (
    as_occurrence,
    check_graph_template,
    check_template,
    requested_graph,
    requested_task,
)
from duly.model.requests.task_request import Completer, TaskRequest
from duly.model.schedules.schedule import Overlap, ScheduleTemplate
from duly.model.task import TaskSpec
from duly.model.tenant import Plan
from duly.server.admission import dependencies
from duly.server.admission.dependencies import DependencyLinks
from duly.server.offload import offload

MAX_QUEUE_EDGES = 10_000
"""The most edges by which one occurrence may wait for earlier ones (overlap: queue)."""


class OccurrenceSpec(msgspec.Struct, frozen=True):
    """The tasks of an occurrence, upstreams first, and the dependencies between them."""

    task_specs: list[TaskSpec]
    links: DependencyLinks | None = None
    name: str | None = None

    @property
    def roots(self) -> list[int]:
        """Return the indexes into `task_specs` of the tasks without an upstream."""
        if self.links is None:
            return list(range(len(self.task_specs)))
        upstreams = self.links.upstreams
        return [
            index
            for index, place in enumerate(self.links.topological_order)
            if not upstreams[place]
        ]


async def check(
    task: Mapping[str, Any] | None, graph: Mapping[str, Any] | None, plan: Plan, overlap: Overlap
) -> None:
    """Raise Invalid when the plan does not allow the task or graph, or a schedule does not."""
    if task is not None:
        check_template(task, plan)
    if graph is not None:
        try:
            await offload(len(graph["tasks"]), _check_graph, graph, plan, overlap)
        except Invalid as error:
            raise error.within("graph") from None
        except TooLarge as error:
            raise TooLarge(f"graph: {error.message}", field="graph") from None


async def build_spec(
    template: ScheduleTemplate, completer: Completer, *, start_at: datetime
) -> OccurrenceSpec:
    """Return the spec of one occurrence; raises Invalid when the plan no longer allows it."""
    if template.graph is None:
        request = msgspec.convert(requested_task(template.task or {}), TaskRequest)
        return OccurrenceSpec([as_occurrence(completer.complete(request), start_at)])
    graph = template.graph
    return await offload(len(graph["tasks"]), _build_graph_spec, graph, completer, start_at)


def _check_graph(graph: Mapping[str, Any], plan: Plan, overlap: Overlap) -> None:
    request = msgspec.convert(requested_graph(graph), GraphRequest)
    graph_name(request.name)
    check_graph_template(tasks_with_defaults(request), plan)
    spec = _build_graph_spec(graph, Completer(plan), None)
    roots, size = len(spec.roots), len(spec.task_specs)
    if overlap is Overlap.QUEUE and roots * size > MAX_QUEUE_EDGES:
        raise Invalid(
            "tasks",
            f"with overlap: queue, each of the {roots} tasks without an upstream would wait for "
            f"all {size} of the occurrence before, which is more than {MAX_QUEUE_EDGES} "
            "dependencies. Add one first task on which these depend.",
        )


def _build_graph_spec(
    graph: Mapping[str, Any], completer: Completer, start_at: datetime | None
) -> OccurrenceSpec:
    tasks = tasks_with_defaults(msgspec.convert(requested_graph(graph), GraphRequest))
    specs = [
        _complete(completer, request, f"tasks[{index}]", start_at)
        for index, request in enumerate(tasks)
    ]
    links = dependencies.resolve(specs)
    if links is not None:
        specs = [specs[place] for place in links.topological_order]
    return OccurrenceSpec(specs, links, graph.get("name"))


def _complete(
    completer: Completer, request: TaskRequest, where: str, start_at: datetime | None
) -> TaskSpec:
    try:
        return as_occurrence(completer.complete(request), start_at)
    except Invalid as error:
        raise error.within(where) from None
