"""The messages between a server and an agent, and their encoding.

Agents dial out: they poll for work, send heartbeats and report, all by POST with a msgpack body
and the node's key as bearer token. An attempt is always identified by (task, attempt, fencing
token). Clocks are not compared: an agent sends durations, and the server subtracts them from
PostgreSQL's time.

Every message is idempotent. A poll lists the attempts that the agent holds, and the response the
others that it should hold; a report that was accepted before is accepted again.
"""

from typing import Any, Literal, TypeVar

import msgspec

from duly.errors import Malformed
from duly.model.requests.amounts import ResourcesRequest, resources_to_json
from duly.model.resources import Resources
from duly.model.task import Outcome, Payload, Reason, Usage

MEDIA_TYPE = "application/x-msgpack"
MAX_LOG_TAIL_BYTES = 4096
"""The tail of an attempt's log that is sent with its report."""

NEIGHBOR_KILLED = "neighbor_killed"
"""The reason of a call that has ended with its process because of another call there."""
MAX_ARTIFACT_CHUNK_BYTES = 4 * 2**20


class AttemptRef(msgspec.Struct, frozen=True, array_like=True):
    """An attempt and its fencing token."""

    task: int
    attempt: int
    token: int


class Capacity(ResourcesRequest, omit_defaults=True, kw_only=True):
    """A node's capacity in the fields of a task's `resources`; absent kinds are 0."""

    cpu_milli: int | None = None
    """Thousandths of a core, as sent by earlier versions; ignored if `cpu` is given."""


class JoinRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/nodes (JSON): the bearer token is a join token, or the key of an earlier join.

    A worker, which tells its `functions`, first joins with an API key of the scope `node` instead:
    its node belongs to the tenant of that key, and offers nothing but slots.

    Joining starts a new incarnation and ends the node's previous one. A new node generates and
    stores its key before it joins, so a join whose response was lost can be retried: the same
    key means the same node.
    """

    name: str
    key: str | None = None
    """The key that the node generated; required with a join token."""
    capacity: Capacity
    labels: dict[str, str] = {}
    isolation: str = "process"
    version: str = ""
    enforcement: dict[str, str] = {}
    """How each kind of limit is enforced there (`duly.agent.limits.enforcement`)."""
    functions: list[str] | None = None
    """The functions that a worker knows; None for an agent, which runs commands."""


def capacity(resources: Resources) -> Capacity:
    """Return `resources` as the capacity in a join request, for servers of any version."""
    return Capacity(**resources_to_json(resources), cpu_milli=resources.cpu_milli)


class JoinResponse(msgspec.Struct, kw_only=True):
    """The node's ids and the terms of its lease."""

    node: int
    incarnation: int
    lease_ttl: float
    heartbeat_interval: float


class Assignment(msgspec.Struct, kw_only=True):
    """An attempt for the agent to start, unless it already holds it."""

    ref: AttemptRef
    payload: Payload
    resources: Resources
    execution_cap: float
    grace: float
    idempotency_key: str
    log_limit: int
    result_limit: int
    inputs_limit: int | None = None
    """Maximum total bytes of its upstreams' results; None: there are none to fetch."""
    tenant: int | None = None
    """The tenant: workspaces of an attempt are only reused by attempts of the same tenant."""
    cpu_quota: bool = False
    """Whether its cpu is a hard cap, and not only its share under contention."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt for the agent to end.

    `cancelled`: SIGTERM, grace period, SIGKILL, then report. `capped`: SIGKILL, then report (the
    agent should have done so itself). `lost`: SIGKILL without a report; the lease has moved on.
    """

    ref: AttemptRef
    why: Literal["cancelled", "capped", "lost"]
    is_settled: bool = False
    """Whether its task has ended: no grace period, and the report only frees the resources."""


class PollRequest(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/poll: the attempts that the agent holds, and how long it will wait."""

    incarnation: int
    held: list[AttemptRef]
    wait: float
    latest: int | None = None
    """The highest token the agent was ever sent: the server that sent it can skip a query."""


class PollResponse(msgspec.Struct, kw_only=True):
    """The attempts that the agent has to start, and those that it has to end."""

    start: list[Assignment]
    stop: list[Stop]


class Heartbeat(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/heartbeat: renews the lease of the incarnation.

    After `stopping` the incarnation gets no more work. With a `shortage`, of something that the
    node itself needs to start tasks, it gets none until the shortage is over. A worker tells how
    many `slots` it offers, if that is another number than before.
    """

    incarnation: int
    held: list[AttemptRef]
    stopping: bool = False
    shortage: str | None = None
    slots: int | None = None


class HeartbeatResponse(msgspec.Struct, kw_only=True):
    """The lease is valid for `ttl` seconds, counted from before the heartbeat was sent."""

    ttl: float
    stop: list[Stop]


class Throttled(msgspec.Struct, frozen=True, array_like=True):
    """A downstream that has throttled an attempt, and how many seconds it asked to wait."""

    key: str
    retry_after: float = 0.0


class AttemptReport(msgspec.Struct, kw_only=True):
    """How an attempt ended; sent once none of its processes is left.

    `ran` and `ended_ago` are seconds on the agent's monotonic clock; `ran` is None if it never
    started. `tail` is the end of its log, at most MAX_LOG_TAIL_BYTES of its `log_size`.
    """

    ref: AttemptRef
    outcome: Outcome
    exit_code: int | None = None
    reason: Reason | None = None
    ran: float | None = None
    ended_ago: float = 0.0
    usage: Usage | None = None
    tail: bytes = b""
    log_size: int = 0
    result: bytes | None = None
    result_limit: int | None = None
    """Maximum bytes of the result; a longer one was truncated."""
    throttled: list[Throttled] = []
    """What it said about downstreams; `retry_after` counts from this report."""
    retry_after: float | None = None
    """Seconds after which the function asked to be called again, instead of the usual backoff."""
    gives_up: bool = False
    """Whether no retry could help, as its function said: the task is a dead letter at once."""


class ReportRequest(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/report: a batch of ended attempts."""

    incarnation: int
    reports: list[AttemptReport]


class ReportResponse(msgspec.Struct, kw_only=True):
    """For each report, in order, whether it was accepted; False means stale: forget it."""

    accepted: list[bool]


class LogChunk(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/logs: bytes of an attempt's log from `offset` on."""

    incarnation: int
    ref: AttemptRef
    offset: int
    data: bytes


class InputsRequest(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/inputs: fetches a page of the upstream results of an attempt's task.

    `above` is the cursor: 0 for the first page, then the value of the previous page.
    """

    ref: AttemptRef
    above: int = 0


class UpstreamResult(msgspec.Struct, frozen=True, array_like=True):
    """The JSON result of an upstream, named by its ref or its id."""

    name: str
    result: bytes


class InputsPage(msgspec.Struct, kw_only=True):
    """A page of results; the last page has no `above`."""

    results: list[UpstreamResult]
    above: int | None = None


class ArtifactRequest(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/artifact: fetches a chunk of an attempt's artifact from `offset` on.

    The payload of the attempt identifies the artifact by its SHA-256.
    """

    ref: AttemptRef
    offset: int = 0


class ArtifactChunk(msgspec.Struct, kw_only=True):
    """Bytes of an artifact, at most MAX_ARTIFACT_CHUNK_BYTES; `size` is its total.

    Empty once `offset` has reached `size`.
    """

    data: bytes
    size: int


class PreparingReport(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/preparing: attempts whose inputs are still being fetched.

    Execution caps count from the start of an attempt, so servers must not cap these meanwhile.
    """

    refs: list[AttemptRef]


class MeasuredUsage(msgspec.Struct, frozen=True, array_like=True):
    """How many seconds an attempt has run, and its usage so far, if known."""

    ref: AttemptRef
    ran: float
    cpu_seconds: float | None = None
    peak_memory_mb: float | None = None


class ThrottledAttempt(msgspec.Struct, frozen=True, array_like=True):
    """A running attempt, and a downstream that has throttled it."""

    ref: AttemptRef
    throttled: Throttled


class RunningReport(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/running: interim usage of attempts that have run for a while.

    Their reports repeat all of it at the end. If the node is lost, there are no reports. What
    downstreams have throttled attempts comes along.
    """

    measured: list[MeasuredUsage]
    throttled: list[ThrottledAttempt] = []


class AttemptKeyRegistration(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/attempt-key: registers the SHA-256 of an attempt's key.

    Sent once, and only for an attempt that calls the API (`duly.model.attempt_key`).
    """

    ref: AttemptRef
    digest: bytes


class LeaveRequest(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/leave: the agent stops and holds no attempts."""

    incarnation: int


T = TypeVar("T")


def encode(message: Any) -> bytes:
    """Return `message` as msgpack."""
    return msgspec.msgpack.encode(message)


def decode(data: bytes, kind: type[T]) -> T:
    """Read a message of `kind`; raises Malformed for anything else."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise Malformed(f"Not a {kind.__name__}: {error}") from error
