"""Shapes: everything about a task that placement depends on, shared by many tasks.

Shapes are interned and tasks carry a shape id. The scheduler works per shape, so a shape that
fits nowhere is checked once and not once per task.

Decision: docs/adr/0024-queue-in-shape.md.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from duly.model.node import Worker
from duly.model.resources import Resources


class Concurrency(msgspec.Struct, frozen=True):
    """The number of attempts that a tenant may run at once under a concurrency key.

    If tasks with the same key state different limits, the smallest among the running ones and
    the one to start applies.
    """

    key: str
    limit: int


class FunctionRef(msgspec.Struct, frozen=True):
    """A function that workers of one tenant know by its name."""

    tenant_id: int
    name: str


class Node(Protocol):
    """What a shape asks of a node, besides resources."""

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels that the node has."""
        ...

    @property
    def worker(self) -> Worker | None:
        """Return what it is as a worker; None for an agent."""
        ...


class Shape(msgspec.Struct, frozen=True):
    """A task's resources, required labels, concurrency limit, queue, downstreams and function."""

    needs: Resources
    requires: dict[str, str] = {}
    concurrency: Concurrency | None = None
    queue: str | None = None
    """The queue of its tasks until their slack runs out; None is `delayable`."""
    user_id: int | None = None
    """The user of its tasks, if the users of their tenant divide its fair share."""
    uses: tuple[str, ...] = ()
    """The keys of the downstreams that its tasks call, sorted."""
    function: FunctionRef | None = None
    """The function that its tasks call; only workers that know it can run them."""

    @property
    def has_keys(self) -> bool:
        """Return True if attempts of a tenant with the same key are limited together."""
        return self.concurrency is not None or bool(self.uses)

    @property
    def kind(self) -> str:
        """Return a key that is equal for shapes that fit on the same nodes."""
        fields: tuple[object, ...] = (self.needs, self.requires)
        if self.function is not None:
            fields = (*fields, self.function)
        return msgspec.json.encode(fields, order="deterministic").decode()

    def is_for(self, worker: Worker | None) -> bool:
        """Return True for the nodes that may run it by their kind.

        These are agents for a command, and the workers of its tenant for a call.
        """
        if self.function is None:
            return worker is None
        return worker is not None and worker.tenant_id == self.function.tenant_id

    def suits(self, node: Node) -> bool:
        """Return True if a node may run it and has its labels, and as a worker knows its function.

        Every decision on where a task fits asks this, besides comparing resources.
        """
        if not self.is_for(node.worker):
            return False
        called, worker = self.function, node.worker
        if called is not None and worker is not None and called.name not in worker.functions:
            return False
        return not (self.requires and self.missing(node.labels))

    def missing(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the required labels that a node with `labels` does not have."""
        return {name: value for name, value in self.requires.items() if labels.get(name) != value}
