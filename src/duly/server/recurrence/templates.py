"""What a schedule submits: checked when it is made, and completed when it fires."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from duly.errors import Invalid, TooLarge
from duly.model.graph_request import GraphRequest, graph_name, whole_tasks
from duly.model.request import Completer, TaskRequest
from duly.model.schedule import Overlap, Template
from duly.model.schedule_request import check_graph_template, check_template, occurring
from duly.model.task import TaskSpec
from duly.model.tenant import Plan
from duly.server import linker
from duly.server.linker import Links
from duly.server.offload import offload

MOST_EDGES = 10_000
"""Edges by which one occurrence waits for those before it, at most."""


class Plot(msgspec.Struct, frozen=True):
    """The tasks of an occurrence, upstreams first, and what links them."""

    specs: list[TaskSpec]
    links: Links | None = None
    name: str | None = None

    @property
    def roots(self) -> list[int]:
        """Return the places, in the order of the specs, of those that wait for no other."""
        if self.links is None:
            return list(range(len(self.specs)))
        upstreams = self.links.upstreams
        return [index for index, place in enumerate(self.links.order) if not upstreams[place]]


async def check(
    task: Mapping[str, Any] | None, graph: Mapping[str, Any] | None, plan: Plan, overlap: Overlap
) -> None:
    """Raise Invalid when what a schedule submits could not be submitted now, or not by it."""
    if task is not None:
        check_template(task, plan)
    if graph is not None:
        try:
            await offload(len(graph["tasks"]), _check_graph, graph, plan, overlap)
        except Invalid as error:
            raise Invalid(f"graph.{error.field}", f"graph: {error.message}") from None
        except TooLarge as error:
            raise TooLarge(f"graph: {error.message}", field="graph") from None


async def plot(template: Template, completer: Completer, *, start_at: datetime) -> Plot:
    """Return what an occurrence asks for; raises Invalid when the plan has shrunk."""
    if template.graph is None:
        request = msgspec.convert(template.task or {}, TaskRequest)
        return Plot([occurring(completer.complete(request), start_at)])
    graph = template.graph
    return await offload(len(graph["tasks"]), _plot_graph, graph, completer, start_at)


def _check_graph(graph: Mapping[str, Any], plan: Plan, overlap: Overlap) -> None:
    request = msgspec.convert(graph, GraphRequest)
    graph_name(request.name)
    check_graph_template(whole_tasks(request), plan)
    found = _plot_graph(graph, Completer(plan), None)
    roots = len(found.roots)
    if overlap is Overlap.QUEUE and roots * len(found.specs) > MOST_EDGES:
        raise Invalid(
            "tasks",
            f"With overlap: queue each of the {roots} tasks that it begins with would wait for "
            f"all {len(found.specs)} of the occurrence before, which is more than {MOST_EDGES} in "
            "all. Let one task come first, on which these depend.",
        )


def _plot_graph(graph: Mapping[str, Any], completer: Completer, start_at: datetime | None) -> Plot:
    tasks = whole_tasks(msgspec.convert(graph, GraphRequest))
    specs = [
        _complete(completer, request, f"tasks[{index}]", start_at)
        for index, request in enumerate(tasks)
    ]
    links = linker.link(specs)
    if links is not None:
        specs = [specs[place] for place in links.order]
    return Plot(specs, links, graph.get("name"))


def _complete(
    completer: Completer, request: TaskRequest, where: str, start_at: datetime | None
) -> TaskSpec:
    try:
        return occurring(completer.complete(request), start_at)
    except Invalid as error:
        raise Invalid(f"{where}.{error.field}", f"{where}: {error.message}") from None
