"""The messages between a server and an agent, and their encoding.

Agents dial out: they poll for work, send heartbeats, and report, all by POST with
a msgpack body and the node's key as bearer. An attempt is always named by all of
(task, attempt, token), the fence. Clocks are not compared: an agent sends
durations, and the server counts them back from PostgreSQL's time.

Everything is idempotent. A poll says what the agent holds and is answered with
whatever else it should hold; a report that was accepted before is accepted again.
"""

from typing import Any, Literal, TypeVar

import msgspec

from duly.errors import Malformed
from duly.model.amounts import ResourcesRequest, told_resources
from duly.model.resources import Resources
from duly.model.task import Outcome, Payload, Reason, Usage

MEDIA_TYPE = "application/x-msgpack"
TAIL_BYTES = 4096
"""The end of an attempt's log that travels with its report."""

ARTIFACT_PIECE = 4 * 2**20
"""The bytes of an artifact that come at once, at most."""


class AttemptRef(msgspec.Struct, frozen=True, array_like=True):
    """An attempt, and the right to speak for it."""

    task: int
    attempt: int
    token: int


class Capacity(ResourcesRequest, omit_defaults=True, kw_only=True):
    """What a node has, as a task's `resources` say it; what is left out, it has none of."""

    cpu_milli: int | None = None
    """Thousandths of a core, which earlier versions say instead; counts only without `cpu`."""


class Join(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /v1/nodes (JSON): the bearer is a join token, or the key of an earlier join.

    Joining begins a new incarnation and ends the node's previous one. A new node makes its
    key itself and keeps it before it asks, so that a join whose answer was lost can be
    repeated: with the same key it is the same node.
    """

    name: str
    key: str | None = None
    """The key that the node has made for itself; needed with a join token."""
    capacity: Capacity
    labels: dict[str, str] = {}
    isolation: str = "process"
    version: str = ""
    enforcement: dict[str, str] = {}
    """How each kind of limit is enforced there (`duly.agent.enforcement`)."""


def capacity(resources: Resources) -> Capacity:
    """Return what a node has as it says so when it joins, to servers of any version."""
    return Capacity(**told_resources(resources), cpu_milli=resources.cpu_milli)


class Joined(msgspec.Struct, kw_only=True):
    """What the servers call the node, and the terms of its lease."""

    node: int
    incarnation: int
    lease_ttl: float
    heartbeat_interval: float


class Assignment(msgspec.Struct, kw_only=True):
    """An attempt that the agent is to start, unless it holds it already."""

    ref: AttemptRef
    payload: Payload
    resources: Resources
    execution_cap: float
    grace: float
    idempotency_key: str
    log_limit: int
    result_limit: int
    inputs_limit: int | None = None
    """Bytes that the results of its upstreams may have together; None: there are none to fetch."""
    tenant: int | None = None
    """Whose it is: what one attempt has used, only others of the same tenant may use again."""
    cpu_quota: bool = False
    """Whether its cpu is the most that it gets, and not only its share when others want it, too."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that the agent is to end.

    `cancelled`: SIGTERM, grace, SIGKILL, then report. `capped`: SIGKILL, then report
    (the agent should have done so itself). `lost`: SIGKILL and forget; it is another's.
    """

    ref: AttemptRef
    why: Literal["cancelled", "capped", "lost"]


class Poll(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/poll: what the agent holds, and how long it is ready to wait."""

    incarnation: int
    held: list[AttemptRef]
    wait: float
    latest: int | None = None
    """The highest token that the agent was ever given: a server that gave it need not look."""


class Orders(msgspec.Struct, kw_only=True):
    """The answer to a poll: what is to be started and what is to be ended."""

    start: list[Assignment]
    stop: list[Stop]


class Heartbeat(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/heartbeat: renews the lease of the incarnation.

    Once `stopping` has been said, the incarnation is given no more work. It is given none while it
    has a `shortage`: something of its own that it could not start tasks without.
    """

    incarnation: int
    held: list[AttemptRef]
    stopping: bool = False
    shortage: str | None = None


class Renewed(msgspec.Struct, kw_only=True):
    """The lease is good for `ttl` seconds, counted from before the heartbeat was sent."""

    ttl: float
    stop: list[Stop]


class AttemptReport(msgspec.Struct, kw_only=True):
    """How an attempt ended; sent once nothing of it is left running.

    `ran` and `ended_ago` are seconds on the agent's monotonic clock; `ran` is None when it
    was never started. `tail` is the end of its log, at most TAIL_BYTES; `log_size` the whole.
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
    """The bytes that the result might have; what is longer is too large, and cut."""


class Reports(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/report: a batch of ended attempts."""

    incarnation: int
    reports: list[AttemptReport]


class Receipts(msgspec.Struct, kw_only=True):
    """For each report, in order, whether it was accepted; False means stale: forget it."""

    accepted: list[bool]


class LogChunk(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/logs: bytes of an attempt's log from `offset` on."""

    incarnation: int
    ref: AttemptRef
    offset: int
    data: bytes


class InputsWanted(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/inputs: asks for what the upstreams of an attempt's task have left.

    The first page is above 0, and each page says above what the next one is.
    """

    ref: AttemptRef
    above: int = 0


class Input(msgspec.Struct, frozen=True, array_like=True):
    """The result of an upstream, as JSON, and what it is called: by its ref, or by its id."""

    name: str
    result: bytes


class Inputs(msgspec.Struct, kw_only=True):
    """A page of results; without `above` it is the last one."""

    results: list[Input]
    above: int | None = None


class ArtifactWanted(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/artifact: asks for bytes of the artifact of an attempt, from `offset` on.

    Which artifact it is, the payload says: `artifact`, the SHA-256 of all of its bytes.
    """

    ref: AttemptRef
    offset: int = 0


class ArtifactPiece(msgspec.Struct, kw_only=True):
    """Bytes of an artifact, not more than ARTIFACT_PIECE; `size` is how many there are in all.

    There are none once `offset` has reached `size`.
    """

    data: bytes
    size: int


class Preparing(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/preparing: what these attempts need is still being fetched.

    Their caps begin to count when they begin, so the servers do not have them killed meanwhile.
    """

    refs: list[AttemptRef]


class Measured(msgspec.Struct, frozen=True, array_like=True):
    """For how many seconds an attempt has run, and what it has used by now, if that is known."""

    ref: AttemptRef
    ran: float
    cpu_seconds: float | None = None
    peak_memory_mb: float | None = None


class Running(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/running: what is known by now of attempts that have run for a while.

    Their reports tell all of it in the end. If the node is lost, there are no reports.
    """

    measured: list[Measured]


class AttemptKey(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/attempt-key: the key with this SHA-256 speaks for the attempt from now on.

    Sent once, and only for an attempt that has something to say (`duly.model.attempt_key`).
    """

    ref: AttemptRef
    digest: bytes


class Leave(msgspec.Struct, kw_only=True):
    """POST /v1/gateway/leave: the agent stops; it holds nothing any more."""

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
