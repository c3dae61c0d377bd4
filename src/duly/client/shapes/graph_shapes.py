"""JSON types of graphs."""

from typing import TypedDict

from duly.client.shapes.task_shapes import Dependency


class GraphIds(TypedDict):
    """The id of a submitted graph, and the ids of its tasks by ref."""

    id: str
    ids: dict[str, str]


class PauseCounts(TypedDict):
    """How many tasks were paused and how many keep running; `more`: repeat for the rest."""

    paused: int
    running: int
    more: bool


class ResumeCount(TypedDict):
    """How many tasks were resumed; `more`: repeat for the rest."""

    resumed: int
    more: bool


class GraphTask(TypedDict):
    """A task of a graph."""

    id: str
    ref: str | None
    name: str | None
    status: str
    depends_on: list[str | Dependency]


class Graph(TypedDict):
    """A graph and the first thousand of its tasks, in topological order."""

    id: str
    name: str | None
    tenant: str
    user: str | None
    status: str
    submitted_at: str
    pending_operation: str | None
    counts: dict[str, int]
    tasks: list[GraphTask]
    more: bool


class TaskGraph(TypedDict):
    """A task's upstream and downstream tasks, direct and indirect."""

    id: str
    graph: str | None
    dependencies: list[str]
    dependents: list[str]
    tasks: list[GraphTask]
    more: bool
