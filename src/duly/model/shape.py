"""A shape: all that decides where and when a task may run, the same for many tasks.

Shapes are interned. Tasks carry the number of theirs, and the scheduler works per
shape, so that what fits nowhere is looked at once and not once for every task.
"""

from collections.abc import Mapping

import msgspec

from duly.model.queue import Queue
from duly.model.resources import Resources


class Concurrency(msgspec.Struct, frozen=True):
    """How many attempts of a tenant may run at once under a key that it has chosen.

    It holds for as long as a task of it runs: where tasks with the same key state different
    limits, the smallest counts among those that run and the one that is to start.
    """

    key: str
    limit: int


class Shape(msgspec.Struct, frozen=True):
    """What a task needs of a node, its labels, beside how many others, and in which queue."""

    needs: Resources
    requires: dict[str, str] = {}
    concurrency: Concurrency | None = None
    queue: Queue | None = None
    """Where its tasks wait for as long as they can; None is `delayable`, as almost all are."""

    @property
    def kind(self) -> str:
        """Return what is the same for all shapes that fit on the same nodes."""
        return msgspec.json.encode((self.needs, self.requires), order="deterministic").decode()

    def missing(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return what it requires and a node with `labels` does not have."""
        return {name: value for name, value in self.requires.items() if labels.get(name) != value}
