"""What the API tells of nodes, servers and the whole: the JSON that operators rely on."""

from datetime import datetime

import msgspec

from duly.api.shapes import Amounts, amounts
from duly.store import reservations
from duly.store.overview import NodeView, ServerView, TaskCounts


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that runs tasks."""

    id: str
    name: str
    status: str
    capacity: Amounts
    free: Amounts
    labels: dict[str, str]
    last_heartbeat_at: datetime | None
    tasks: int
    enforcement: dict[str, str]
    """How each kind of limit is enforced there."""
    shortage: str | None
    """What the node itself lacks, so that it is given no work for now."""


class Duty(msgspec.Struct, frozen=True):
    """What a server leads, and in which term."""

    name: str
    term: int


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One of the servers; tasks name the one that admitted them."""

    id: str
    """Its number; the server that takes the place of a dead one may get the same."""
    name: str
    status: str
    version: str
    started_at: datetime
    last_heartbeat_at: datetime
    duties: list[Duty]


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a node that a tenant has: for a task that runs, or reserved."""

    id: str
    kind: str
    tenant: str
    node: str
    resources: Amounts
    task: str | None
    expires_at: datetime | None


class NodeCounts(msgspec.Struct, frozen=True):
    """How many nodes are in each status."""

    ready: int
    draining: int
    drained: int
    lost: int


class DatabaseAnswer(msgspec.Struct, frozen=True):
    """What is known of the database, and whether it keeps the tenants of requests apart."""

    version: str
    row_security: bool


class DriftAnswer(msgspec.Struct, frozen=True):
    """How many things of one kind are not as they should be; a few ids, for administrators."""

    kind: str
    count: int
    message: str
    examples: list[str]


class AuditAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the self-audit has found; the times are of its last complete rounds."""

    completed_at: datetime | None
    history_completed_at: datetime | None
    drift: list[DriftAnswer]
    repaired: int
    repaired_at: datetime | None


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole at a glance; tasks are the caller's, and final ones of the last hours."""

    version: str
    server: str
    database: DatabaseAnswer
    tasks: TaskCounts
    window_hours: int
    nodes: NodeCounts
    capacity: Amounts
    free: Amounts
    leader: str | None
    time: datetime
    audit: AuditAnswer


class NodeToken(msgspec.Struct, frozen=True):
    """A join token, shown only this once."""

    token: str
    expires_at: datetime
    uses: int | str
    """How many nodes it admits: a number, or "unlimited"."""


def server(view: ServerView) -> Server:
    """Return a server as the API shows it."""
    return Server(
        id=str(view.number),
        name=f"server-{view.number}",
        status="ready" if view.is_alive else "lost",
        version=view.version,
        started_at=view.started_at,
        last_heartbeat_at=view.last_heartbeat_at,
        duties=[Duty(duty.name, duty.term) for duty in view.duties],
    )


def allocation(found: reservations.Allocation, tenant: str) -> Allocation:
    """Return an allocation as it is told."""
    return Allocation(
        id=str(found.id),
        kind=found.kind,
        tenant=tenant,
        node=found.node,
        resources=amounts(found.resources),
        task=str(found.id) if found.kind == "task" else None,
        expires_at=found.expires_at,
    )


def node(view: NodeView) -> Node:
    """Return a node as it is told."""
    return Node(
        id=str(view.id),
        name=view.name,
        status=view.status,
        capacity=amounts(view.capacity),
        free=amounts(view.free),
        labels=view.labels,
        last_heartbeat_at=view.last_heartbeat_at,
        tasks=view.tasks,
        enforcement=view.enforcement,
        shortage=view.shortage,
    )
