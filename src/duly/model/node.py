"""Nodes: the machines that run tasks, and the incarnations of their agents."""

from datetime import timedelta
from enum import StrEnum

import msgspec

from duly.model.resources import NOTHING, Resources

UNLIMITED = "unlimited"
"""What is written for the uses of a join token that admits any number of nodes."""


class NodeStatus(StrEnum):
    """Where a node is, as an operator sees it."""

    READY = "ready"
    DRAINING = "draining"
    DRAINED = "drained"
    LOST = "lost"


class Known(msgspec.Struct, frozen=True):
    """What a node has when it is empty, whether it is alive or not."""

    capacity: Resources
    labels: dict[str, str] = {}


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What one live incarnation of an agent can take now."""

    node_id: int
    incarnation_id: int
    name: str
    capacity: Resources
    free: Resources
    used: Resources = NOTHING
    """What tasks have of it: it comes free again, unlike what is reserved."""
    next_end: timedelta = timedelta(0)
    """How long it is at most until the first of these tasks ends, by its cap."""
    labels: dict[str, str] = {}
    draining: bool = False
    shortage: str | None = None
    """What the node itself lacks, so that it cannot start tasks for now."""
    penalty: int = 0
    """How much later than others it is asked, because it had trouble lately."""
    revision: int = 0
    """Rises when what the node has to give changes; a placement names the one it was made by."""

    @property
    def takes_work(self) -> bool:
        """Tell whether anything may be placed there at all."""
        return not self.draining and self.shortage is None
