"""A shape: all that decides where a task may run, the same for many tasks.

Shapes are interned. Tasks carry the number of theirs, and the scheduler works per
shape, so that what fits nowhere is looked at once and not once for every task.
"""

from collections.abc import Mapping

import msgspec

from duly.model.resources import Resources


class Shape(msgspec.Struct, frozen=True):
    """What a task needs of a node, and the labels that the node must have."""

    needs: Resources
    requires: dict[str, str] = {}

    def missing(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return what it requires and a node with `labels` does not have."""
        return {name: value for name, value in self.requires.items() if labels.get(name) != value}
