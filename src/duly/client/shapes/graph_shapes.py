"""The shapes of graphs, as types for JSON."""

from typing import TypedDict

from duly.client.shapes import Dependency


class GraphIds(TypedDict):
    """The id of a graph that was submitted, and those of its tasks by their refs."""

    id: str
    ids: dict[str, str]


class PausedGraph(TypedDict):
    """How many tasks were paused, and how many run on; with `more` others are left."""

    paused: int
    running: int
    more: bool


class ResumedGraph(TypedDict):
    """How many tasks of a graph may go on again; with `more` others are left."""

    resumed: int
    more: bool


class GraphPart(TypedDict):
    """A task as a part of a graph."""

    id: str
    ref: str | None
    name: str | None
    status: str
    depends_on: list[str | Dependency]


class Graph(TypedDict):
    """A graph, and the first thousand of its tasks, upstreams before dependants."""

    id: str
    name: str | None
    tenant: str
    user: str | None
    status: str
    submitted_at: str
    wish: str | None
    counts: dict[str, int]
    tasks: list[GraphPart]
    more: bool


class TaskGraph(TypedDict):
    """What is around a task: what it waits for, what waits for it, directly or by others."""

    id: str
    graph: str | None
    dependencies: list[str]
    dependents: list[str]
    tasks: list[GraphPart]
    more: bool
