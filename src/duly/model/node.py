"""Nodes: the machines that run tasks, and the incarnations of their agents."""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from duly.model.resources import NO_RESOURCES, Resources

UNLIMITED_USES = "unlimited"
"""The uses of a join token that admits any number of nodes."""


class NodeStatus(StrEnum):
    """Where a node is, as an operator sees it."""

    READY = "ready"
    DRAINING = "draining"
    DRAINED = "drained"
    STOPPED = "stopped"
    """Its agent shut down cleanly and has not come back."""
    LOST = "lost"

    @property
    def is_down(self) -> bool:
        """Return True if no agent of the node is connected."""
        return self in (NodeStatus.STOPPED, NodeStatus.LOST)


class Absence(StrEnum):
    """Why a node that is known offers nothing."""

    LOST = "lost"
    STOPPED = "stopped"
    STOPPING = "stopping"
    REMOVED = "removed"


class Worker(msgspec.Struct, frozen=True):
    """What makes a node a worker: its tenant, and the functions that it knows."""

    tenant_id: int
    functions: frozenset[str] = frozenset()


class NodeProfile(msgspec.Struct, frozen=True):
    """The total capacity and labels of a node, alive or not."""

    capacity: Resources
    labels: dict[str, str] = {}
    worker: Worker | None = None


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that one live incarnation of an agent offers now."""

    node_id: int
    incarnation_id: int
    name: str
    capacity: Resources
    free: Resources
    used: Resources = NO_RESOURCES
    """In use by tasks: unlike reservations it becomes free when they end."""
    reserved: Resources = NO_RESOURCES
    next_end: timedelta = timedelta(0)
    """The longest time until the first of these tasks ends, by its cap."""
    labels: dict[str, str] = {}
    draining: bool = False
    shortage: str | None = None
    """What the node itself lacks; it cannot start tasks for now."""
    penalty: int = 0
    """Placement prefers nodes with a lower penalty (`policy/health.py`)."""
    revision: int = 0
    """Rises when the offer changes; a placement names the revision it was based on."""
    worker: Worker | None = None
    """Set for a worker, which runs calls of its tenant and nothing else."""

    @property
    def takes_work(self) -> bool:
        """Return True if tasks may be placed there at all."""
        return not self.draining and self.shortage is None

    @property
    def profile(self) -> NodeProfile:
        """Return what stays of the offer when nothing runs there."""
        return NodeProfile(self.capacity, self.labels, self.worker)


class AbsentNode(msgspec.Struct, frozen=True):
    """A node without a live agent, or removed, as its last incarnation was."""

    name: str
    capacity: Resources
    labels: dict[str, str]
    absence: Absence
    since: datetime
    worker: Worker | None = None
