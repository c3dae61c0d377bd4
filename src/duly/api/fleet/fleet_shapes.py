"""The JSON of nodes, servers, allocations and the cluster's status in responses."""

from datetime import datetime

import msgspec

from duly.api.tasks.task_shapes import Amounts, amounts
from duly.store.fleet import reservations
from duly.store.fleet.overview import NodeView, ServerView, TaskCounts


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that runs tasks."""

    id: str
    name: str
    status: str
    capacity: Amounts
    reported_capacity: Amounts | None
    """What the agent reports, if an administrator has overridden the capacity; else null."""
    free: Amounts
    labels: dict[str, str]
    last_heartbeat_at: datetime | None
    tasks: int
    enforcement: dict[str, str]
    """How each kind of limit is enforced on this node."""
    shortage: str | None
    """What the node is short of; it gets no tasks until the shortage is over."""
    tenant: str | None
    """The tenant of a worker, which runs only that tenant's calls; null for an agent."""
    functions: list[str] | None
    """The functions that a worker knows."""


class Duty(msgspec.Struct, frozen=True):
    """A duty that a server leads, and its term."""

    name: str
    term: int


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A server. Tasks name the one that admitted them."""

    id: str
    """Its number, which the successor of a dead server may get again."""
    name: str
    status: str
    host: str
    """The name of its machine."""
    address: str | None
    """The URL that it listens on."""
    pid: int | None
    version: str
    started_at: datetime
    last_heartbeat_at: datetime
    duties: list[Duty]


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of a node that a tenant holds, for a running task or as a reservation."""

    id: str
    kind: str
    tenant: str
    node: str
    resources: Amounts
    task: str | None
    expires_at: datetime | None


class NodeCounts(msgspec.Struct, frozen=True):
    """The number of nodes in each status."""

    ready: int
    draining: int
    drained: int
    stopped: int
    lost: int


class DatabaseStatus(msgspec.Struct, frozen=True):
    """The database's version, and whether row-level security isolates tenants."""

    version: str
    row_security: bool


class DriftReport(msgspec.Struct, frozen=True):
    """The number of inconsistencies of one kind, with example ids for administrators."""

    kind: str
    count: int
    message: str
    examples: list[str]


class AuditStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of the self-audit; the times are those of its last complete rounds."""

    completed_at: datetime | None
    history_completed_at: datetime | None
    drift: list[DriftReport]
    repaired: int
    repaired_at: datetime | None


class TenantTasks(msgspec.Struct, frozen=True):
    """The tasks of one tenant by status, and the fraction of the nodes that it holds."""

    tenant: str
    tasks: TaskCounts
    share: float | None
    """Null if no node is ready."""


class PeakStatus(msgspec.Struct, frozen=True):
    """Peak time: since when, of which kinds of resources, and how many tasks wait for its end."""

    since: datetime
    kinds: list[str]
    postponed: int
    """Of the tenants whose tasks are counted, among the 100,000 oldest waiting tasks."""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of the cluster, and the number of tasks, final ones of the last hours.

    Administrators see the tasks of all tenants, or of the one that they name. What concerns the
    whole cluster is null for all others: version, database, nodes, capacity, free, leader, audit.
    """

    version: str | None
    server: str
    """The server that answered."""
    tenant: str | None
    """The tenant whose tasks are counted; null: all tenants."""
    database: DatabaseStatus | None
    tasks: TaskCounts
    overdue: int
    """How many of the waiting tasks have waited past their delay tolerance."""
    tenants: list[TenantTasks] | None
    """The tasks of each tenant that has any; null if only one tenant's are counted."""
    window_hours: int
    nodes: NodeCounts | None
    capacity: Amounts | None
    free: Amounts | None
    """What is free on the nodes that take tasks: neither draining nor short of anything."""
    peak: PeakStatus | None
    """Null if it is not peak time."""
    leader: str | None
    time: datetime
    audit: AuditStatus | None


class NodeToken(msgspec.Struct, frozen=True):
    """A join token, which is only shown once."""

    token: str
    expires_at: datetime
    uses: int | str
    """The number of nodes that it admits, or "unlimited"."""


def server(view: ServerView) -> Server:
    """Return a server as JSON."""
    return Server(
        id=str(view.number),
        name=f"server-{view.number}",
        status="ready" if view.is_alive else "lost",
        host=view.host,
        address=view.address,
        pid=view.pid,
        version=view.version,
        started_at=view.started_at,
        last_heartbeat_at=view.last_heartbeat_at,
        duties=[Duty(duty.name, duty.term) for duty in view.duties],
    )


def allocation(row: reservations.Allocation) -> Allocation:
    """Return an allocation as JSON."""
    return Allocation(
        id=str(row.id),
        kind=row.kind,
        tenant=row.tenant,
        node=row.node,
        resources=amounts(row.resources),
        task=str(row.id) if row.kind == "task" else None,
        expires_at=row.expires_at,
    )


def node(view: NodeView) -> Node:
    """Return a node as JSON."""
    return Node(
        id=str(view.id),
        name=view.name,
        status=view.status,
        capacity=amounts(view.capacity),
        reported_capacity=(
            None if view.reported_capacity is None else amounts(view.reported_capacity)
        ),
        free=amounts(view.free),
        labels=view.labels,
        last_heartbeat_at=view.last_heartbeat_at,
        tasks=view.tasks,
        enforcement=view.enforcement,
        shortage=view.shortage,
        tenant=view.tenant,
        functions=view.functions,
    )
