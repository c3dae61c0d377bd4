"""JSON types of nodes and servers, of what the audit found, and of the status of it all."""

from typing import Literal, TypedDict

from duly.client.shapes.task_shapes import Amounts

TokenUses = int | Literal["unlimited"]
"""How many new nodes a join token admits."""


class NodeToken(TypedDict):
    """A join token for new nodes; no other response has the token."""

    token: str
    expires_at: str
    uses: TokenUses


class Node(TypedDict):
    """A machine that runs tasks."""

    id: str
    name: str
    status: str
    capacity: Amounts
    reported_capacity: Amounts | None
    free: Amounts
    labels: dict[str, str]
    last_heartbeat_at: str | None
    tasks: int
    enforcement: dict[str, str]
    shortage: str | None
    tenant: str | None
    functions: list[str] | None


class Duty(TypedDict):
    """A duty that a server leads, and its term."""

    name: str
    term: int


class Server(TypedDict):
    """A server."""

    id: str
    name: str
    status: str
    host: str
    address: str | None
    pid: int | None
    version: str
    started_at: str
    last_heartbeat_at: str
    duties: list[Duty]


class Allocation(TypedDict):
    """Resources of a node that a tenant has: a running task's, or a reservation."""

    id: str
    kind: str
    tenant: str
    node: str
    resources: Amounts
    task: str | None
    expires_at: str | None


class Drift(TypedDict):
    """Inconsistencies of one kind that the self-audit found."""

    kind: str
    count: int
    message: str
    examples: list[str]


class Audit(TypedDict):
    """The findings of the last self-audit."""

    completed_at: str | None
    history_completed_at: str | None
    drift: list[Drift]
    repaired: int
    repaired_at: str | None


class Database(TypedDict):
    """The database's version, and whether row-level security isolates tenants."""

    version: str
    row_security: bool


class TaskCounts(TypedDict):
    """How many tasks are in each status; ended ones of the last `window_hours`."""

    scheduled: int
    blocked: int
    waiting: int
    running: int
    paused: int
    done: int
    failed: int
    cancelled: int


class NodeCounts(TypedDict):
    """How many nodes are in each status."""

    ready: int
    draining: int
    drained: int
    stopped: int
    lost: int


class TenantTasks(TypedDict):
    """How many tasks of one tenant are in each status, and the fraction of the nodes it holds."""

    tenant: str
    tasks: TaskCounts
    share: float | None


class Peak(TypedDict):
    """Peak time: since when, of which kinds of resources, and how many tasks wait for its end."""

    since: str
    kinds: list[str]
    postponed: int


class Status(TypedDict):
    """An overview of the installation; what concerns all of it is None without the scope admin."""

    version: str | None
    server: str
    tenant: str | None
    database: Database | None
    tasks: TaskCounts
    overdue: int
    tenants: list[TenantTasks] | None
    nodes: NodeCounts | None
    capacity: Amounts | None
    free: Amounts | None
    peak: Peak | None
    leader: str | None
    time: str
    window_hours: int
    audit: Audit | None
