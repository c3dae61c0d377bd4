"""Shapes: everything about a task that placement depends on, shared by many tasks.

Shapes are interned and tasks carry a shape id. The scheduler works per shape, so a shape that
fits nowhere is checked once and not once per task.

Decision: docs/adr/0024-queue-in-shape.md.
"""

from collections.abc import Mapping

import msgspec

from duly.model.resources import Resources


class Concurrency(msgspec.Struct, frozen=True):
    """The number of attempts that a tenant may run at once under a concurrency key.

    If tasks with the same key state different limits, the smallest among the running ones and
    the one to start applies.
    """

    key: str
    limit: int


class Shape(msgspec.Struct, frozen=True):
    """A task's resources, required labels, concurrency limit, queue and downstreams."""

    needs: Resources
    requires: dict[str, str] = {}
    concurrency: Concurrency | None = None
    queue: str | None = None
    """The queue of its tasks until their slack runs out; None is `delayable`."""
    user_id: int | None = None
    """The user of its tasks, if the users of their tenant divide its fair share."""
    uses: tuple[str, ...] = ()
    """The keys of the downstreams that its tasks call, sorted."""

    @property
    def has_keys(self) -> bool:
        """Return True if attempts of a tenant with the same key are limited together."""
        return self.concurrency is not None or bool(self.uses)

    @property
    def kind(self) -> str:
        """Return a key that is equal for shapes that fit on the same nodes."""
        return msgspec.json.encode((self.needs, self.requires), order="deterministic").decode()

    def missing(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the required labels that a node with `labels` does not have."""
        return {name: value for name, value in self.requires.items() if labels.get(name) != value}
