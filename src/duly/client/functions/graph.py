"""Graphs of calls, built in a `with` block: results flow as arguments, and are dependencies.

    with app.graph("nightly") as graph:
        frames = extract.node("a.mp4")
        encode.node(frames.result, height=720)

The block calls nothing and sends nothing. At its end the graph is submitted whole.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from duly.client.functions.encoding.converter import Reference, ResultReference
from duly.client.functions.handle import Handle
from duly.client.functions.submission import request
from duly.errors import DulyError

if TYPE_CHECKING:
    from duly.client.functions.app import App
    from duly.client.functions.task import Task

R = TypeVar("R")
MAX_REF_CHARS = 90


class Node(ResultReference, Generic[R]):
    """A call in a graph."""

    def __init__(self, task: "Task[Any, R, Any]", ref: str) -> None:
        self.ref = ref
        """The name of the task in the graph."""
        self._task = task
        self._handle: Handle[R] | None = None

    def __repr__(self) -> str:
        return f"<node {self.ref}>"

    @property
    def result(self) -> R:
        """The future result, as an argument of other nodes; type checkers see its type."""
        return cast(R, self)

    @property
    def handle(self) -> Handle[R]:
        """The handle of the task, once the graph is submitted."""
        if self._handle is None:
            raise DulyError("The graph is submitted at the end of its with block, not before.")
        return self._handle

    def reference(self) -> Reference:
        """Return the JSON that stands for the result in the same graph, or after it."""
        return Reference(self.ref if self._handle is None else self._handle.id)

    def settle(self, task_id: str) -> None:
        """Take note of the id of the task."""
        self._handle = Handle(self._task.app, task_id, self._task.parameters)


class GraphBuilder:
    """A graph that is being built, and then submitted."""

    def __init__(self, app: "App", name: str | None, key: str | None) -> None:
        self.id: str | None = None
        """The id of the graph, once it is submitted."""
        self._app = app
        self._name = name
        self._key = key
        self._nodes: dict[str, Node[Any]] = {}
        self._tasks: list[dict[str, Any]] = []
        self._uploads: list[tuple[dict[str, Any], bytes]] = []
        self._token: Token[GraphBuilder | None] | None = None

    @property
    def nodes(self) -> Sequence[Node[Any]]:
        """The nodes in the order in which they were added."""
        return list(self._nodes.values())

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._leave()
        if kind is not None or not self._tasks:
            return
        client = self._app.client
        for fields, data in self._uploads:
            fields["artifact"] = client.upload_data(data)
        self._settle(client.submit_graph(self._tasks, name=self._name, idempotency_key=self._key))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._leave()
        if kind is not None or not self._tasks:
            return
        client = self._app.async_client
        for fields, data in self._uploads:
            fields["artifact"] = await client.upload_data(data)
        graph = await client.submit_graph(self._tasks, name=self._name, idempotency_key=self._key)
        self._settle(graph)

    def add(
        self, task: "Task[Any, R, Any]", args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Node[R]:
        """Add a call."""
        fields, upload = request(task, args, kwargs)
        node = Node(task, self._new_ref(task))
        fields["ref"] = node.ref
        if upload is not None:
            self._uploads.append((fields, upload))
        self._nodes[node.ref] = node
        self._tasks.append(fields)
        return node

    def _new_ref(self, task: "Task[Any, Any, Any]") -> str:
        name = task.name.rpartition(":")[2].rpartition(".")[2]
        base = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)
        base = base[:MAX_REF_CHARS] if base.strip("0123456789") else f"node-{base}"
        ref, count = base, 1
        while ref in self._nodes:
            count += 1
            ref = f"{base}-{count}"
        return ref

    def _leave(self) -> None:
        if self._token is not None:
            _current.reset(self._token)
            self._token = None

    def _settle(self, graph: Mapping[str, Any]) -> None:
        self.id = graph["id"]
        for ref, node in self._nodes.items():
            node.settle(graph["ids"][ref])


_current: ContextVar[GraphBuilder | None] = ContextVar("duly_graph", default=None)


def add_node(task: "Task[Any, R, Any]", args: Sequence[Any], kwargs: Mapping[str, Any]) -> Node[R]:
    """Add a call to the graph of the surrounding block; raises DulyError outside of one."""
    graph = _current.get()
    if graph is None:
        raise DulyError("Use node() within `with app.graph(...)`; otherwise use submit().")
    return graph.add(task, args, kwargs)
