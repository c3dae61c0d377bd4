"""The rows of the access matrix: each route with a valid request and the places of its ids.

A route without a row fails a test. `ids` are the kinds of things that its path may
name; `good` is what makes a request succeed for its owner; `places` are all the other
spots where a caller could write something that belongs to somebody else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from duly import wire
from duly.api.auth import Access
from duly.model.resources import Resources
from duly.store.accounts.tenants import generate_key
from tests.api.matrix.holdings import Holding
from tests.api.matrix.world import World

Options = dict[str, Any]
Good = Callable[[World, Holding], Options]


@dataclass(frozen=True, slots=True)
class Place:
    """A spot in a request for something of a kind, and what is told about an unknown one."""

    name: str
    kind: str
    status: int
    options: Callable[[str], Options]
    creates: bool = False
    """Whether the answer is about a new thing, and so never the same twice."""


@dataclass(frozen=True, slots=True)
class Row:
    """What there is to know about a route in order to attack it."""

    access: Access
    ids: tuple[str, ...] = ()
    ok: int = 200
    unknown: int = 404
    """What is told of a thing in the path that is nobody's, or another's."""
    good: Good | None = None
    places: tuple[Place, ...] = ()

    def options(self, world: World, own: Holding) -> Options:
        """Return what makes a request a good one for `own`."""
        return {} if self.good is None else self.good(world, own)


def json(**body: Any) -> Good:
    """Return a good request with that body."""
    return lambda _world, _own: {"json": body}


def query(*kinds: str) -> tuple[Place, ...]:
    """Return places in the query of a list, each of the parameter's own kind."""
    return tuple(
        Place(f"query {kind}", kind, 200, lambda value, kind=kind: {"params": {kind: value}})
        for kind in kinds
    )


def body(kind: str, status: int, make: Callable[[str], Any], *, creates: bool = False) -> Place:
    """Return a place in a body."""
    return Place(f"body {kind}", kind, status, lambda value: {"json": make(value)}, creates)


def edges(make: Callable[[Any], Any]) -> tuple[Place, ...]:
    """Return the places of an upstream in a body, in both of its forms, for tasks of every kind."""
    return tuple(
        body(kind, 422, spelled)
        for kind in ANY_TASK
        for spelled in (make, lambda task: make({"task": task, "on": "always"}))
    )


def message(make: Callable[[int, wire.AttemptRef | None], Any]) -> Good:
    """Return a good message to the gateway, about the attempt that runs."""

    def good(world: World, own: Holding) -> Options:
        made = make(world.runner.agent.joined.incarnation, own.attempt)
        return {"content": wire.encode(made)}

    return good


def joining(_world: World, own: Holding) -> Options:
    """Return a good request to join, as a node that nobody knows yet."""
    capacity = Resources(cpu_milli=1000, memory_mb=512, disk_mb=512)
    asked = wire.JoinRequest(
        name=f"{own.tenant}-node", capacity=wire.capacity(capacity), key=generate_key("dulynode")
    )
    return {"content": msgspec.json.encode(asked)}


def backfill(_world: World, _own: Holding) -> Options:
    """Return a good request to make up for the last hours."""
    now = datetime.now(UTC)
    start_at, end_at = (now - timedelta(hours=2)).isoformat(), now.isoformat()
    return {"json": {"start_at": start_at, "end_at": end_at}}


COMMON = frozenset({"queue"})
"""The kinds of things that are no tenant's, and that everyone sees."""
TRUE = {"command": ["true"]}
SMALL = {"cpu": 0.1, "memory_mb": 16}
PAGE = query("cursor")
KNOWN = {**TRUE, "resources": {"cpu": 0.1, "memory_mb": 16, "disk_mb": 16}}
"""A task of a shape that was submitted before: nothing is to be learned about it."""
TASKS = query("cursor", "name", "user", "label")
ANY_TASK = ("task", "scheduled", "running", "done", "dead")
LIVE = ("task", "scheduled", "running")
ENDED = ("done", "dead")
LETTER = ("dead", "task", "done")

ROWS: dict[tuple[str, str], Row] = {
    ("GET", "/healthz"): Row(Access.PUBLIC),
    ("GET", "/readyz"): Row(Access.PUBLIC),
    ("GET", "/docs"): Row(Access.PUBLIC),
    ("GET", "/v1/openapi.json"): Row(Access.PUBLIC),
    ("GET", "/v1/status"): Row(Access.READ),
    ("GET", "/metrics"): Row(Access.METRICS),
    ("GET", "/v1/servers"): Row(Access.ADMIN),
    ("GET", "/v1/usage"): Row(Access.READ),
    ("POST", "/v1/tasks"): Row(
        Access.SUBMIT,
        ok=201,
        good=json(**TRUE),
        places=(
            body("idempotency_key", 201, lambda k: {**TRUE, "idempotency_key": k}, creates=True),
            body("tier", 422, lambda tier: {**TRUE, "tier": tier}),
            body("artifact", 422, lambda one: {**KNOWN, "artifact": one}),
            *edges(lambda edge: {**KNOWN, "depends_on": [edge]}),
        ),
    ),
    ("POST", "/v1/tasks/batch"): Row(
        Access.SUBMIT,
        ok=201,
        good=json(tasks=[TRUE, TRUE]),
        places=(
            body(
                "idempotency_key",
                201,
                lambda k: {"tasks": [TRUE, {**TRUE, "idempotency_key": k}]},
                creates=True,
            ),
            body("artifact", 422, lambda one: {"tasks": [KNOWN, {**KNOWN, "artifact": one}]}),
            *edges(lambda edge: {"tasks": [KNOWN, {**KNOWN, "depends_on": [edge]}]}),
        ),
    ),
    ("GET", "/v1/tasks"): Row(Access.READ, places=TASKS),
    ("GET", "/v1/tasks/{id}"): Row(Access.READ, ANY_TASK),
    ("POST", "/v1/tasks/wait"): Row(
        Access.READ,
        good=json(ids=["1"], timeout=0),
        places=tuple(
            body(kind, 200, lambda one: {"ids": [one], "timeout": 0}) for kind in ANY_TASK
        ),
    ),
    ("PATCH", "/v1/tasks/{id}"): Row(Access.SUBMIT, ANY_TASK, good=json(name="new")),
    ("DELETE", "/v1/tasks/{id}"): Row(Access.SUBMIT, ANY_TASK),
    ("POST", "/v1/tasks/{id}/cancel"): Row(Access.SUBMIT, ANY_TASK),
    ("POST", "/v1/tasks/{id}/mark"): Row(
        Access.SUBMIT, (*LIVE, *ENDED), good=json(status="done", reason="seen")
    ),
    ("POST", "/v1/tasks/{id}/pause"): Row(Access.SUBMIT, ANY_TASK),
    ("POST", "/v1/tasks/{id}/resume"): Row(Access.SUBMIT, ANY_TASK),
    ("POST", "/v1/tasks/{id}/replay"): Row(Access.SUBMIT, ("done", "dead", *LIVE), ok=201),
    ("GET", "/v1/tasks/{id}/why"): Row(Access.READ, ANY_TASK),
    ("GET", "/v1/tasks/{id}/attempts"): Row(Access.READ, ANY_TASK),
    ("GET", "/v1/attempts"): Row(Access.READ, places=query("name", "user")),
    ("GET", "/v1/tasks/{id}/stages"): Row(Access.READ, ANY_TASK),
    ("GET", "/v1/tasks/{id}/result"): Row(Access.READ, ("done", "dead", *LIVE)),
    ("GET", "/v1/tasks/{id}/logs"): Row(Access.READ, ANY_TASK),
    ("GET", "/v1/tasks/{id}/graph"): Row(Access.READ, ANY_TASK),
    ("POST", "/v1/graphs"): Row(
        Access.SUBMIT,
        ok=201,
        good=json(tasks=[{**TRUE, "ref": "a"}]),
        places=(
            *edges(lambda edge: {"tasks": [{**KNOWN, "ref": "a", "depends_on": [edge]}]}),
            body("artifact", 422, lambda k: {"tasks": [{**KNOWN, "ref": "a", "artifact": k}]}),
        ),
    ),
    ("GET", "/v1/graphs/{id}"): Row(Access.READ, ("graph",)),
    ("POST", "/v1/graphs/{id}/cancel"): Row(Access.SUBMIT, ("graph",)),
    ("POST", "/v1/graphs/{id}/pause"): Row(Access.SUBMIT, ("graph",)),
    ("POST", "/v1/graphs/{id}/resume"): Row(Access.SUBMIT, ("graph",)),
    **{
        ("POST", f"/v1/tasks/{verb}"): Row(
            Access.SUBMIT,
            good=json(name="none"),
            places=tuple(
                body(kind, 200, lambda value, kind=kind: {kind: value})
                for kind in ("name", "user", "label")
            ),
        )
        for verb in ("cancel", "pause", "resume")
    },
    ("GET", "/v1/dead-letters"): Row(Access.READ, places=PAGE),
    ("GET", "/v1/dead-letters/{id}"): Row(Access.READ, LETTER),
    ("DELETE", "/v1/dead-letters/{id}"): Row(Access.SUBMIT, LETTER, ok=204),
    ("POST", "/v1/dead-letters/{id}/replay"): Row(Access.SUBMIT, LETTER, ok=201),
    ("GET", "/v1/resources"): Row(Access.READ, places=PAGE),
    ("POST", "/v1/resources"): Row(Access.MANAGE, ok=201, good=json(resources={"cpu": 0.1})),
    ("GET", "/v1/resources/{id}"): Row(Access.READ, ("reservation", "running")),
    ("PUT", "/v1/resources/{id}"): Row(
        Access.MANAGE, ("reservation", "running"), good=json(resources={"cpu": 0.2})
    ),
    ("DELETE", "/v1/resources/{id}"): Row(Access.MANAGE, ("reservation", "running"), ok=204),
    ("GET", "/v1/schedules"): Row(Access.READ, places=query("cursor", "user")),
    ("POST", "/v1/schedules"): Row(
        Access.SUBMIT,
        ok=201,
        good=json(task=TRUE, daily="06:30"),
        places=(
            body("tier", 422, lambda t: {"task": {**TRUE, "tier": t}, "daily": "06:30"}),
            body("artifact", 422, lambda a: {"task": {**TRUE, "artifact": a}, "daily": "06:30"}),
        ),
    ),
    ("POST", "/v1/schedules/preview"): Row(Access.READ, good=json(daily="06:30")),
    ("GET", "/v1/schedules/{id}"): Row(Access.READ, ("schedule",)),
    ("PATCH", "/v1/schedules/{id}"): Row(Access.SUBMIT, ("schedule",), good=json(name="new")),
    ("DELETE", "/v1/schedules/{id}"): Row(Access.SUBMIT, ("schedule",), ok=204),
    ("POST", "/v1/schedules/{id}/pause"): Row(Access.SUBMIT, ("schedule",)),
    ("POST", "/v1/schedules/{id}/resume"): Row(Access.SUBMIT, ("schedule",)),
    ("POST", "/v1/schedules/{id}/run"): Row(Access.SUBMIT, ("schedule",), ok=201),
    ("POST", "/v1/schedules/{id}/backfill"): Row(
        Access.SUBMIT, ("schedule",), ok=201, good=backfill
    ),
    ("GET", "/v1/schedules/{id}/tasks"): Row(Access.READ, ("schedule",)),
    ("GET", "/v1/schedules/{id}/occurrences"): Row(Access.READ, ("schedule",)),
    ("GET", "/v1/schedules/{id}/next"): Row(Access.READ, ("schedule",)),
    ("GET", "/v1/artifacts"): Row(Access.READ, places=PAGE),
    ("PUT", "/v1/artifacts/{id}"): Row(
        Access.SUBMIT,
        ("artifact",),
        # Whoever uploads names what comes, whether there was any or not.
        unknown=422,
        good=lambda _, own: {"content": own.tenant.encode()},
    ),
    ("GET", "/v1/artifacts/{id}"): Row(Access.READ, ("artifact",)),
    ("HEAD", "/v1/artifacts/{id}"): Row(Access.READ, ("artifact",)),
    ("DELETE", "/v1/artifacts/{id}"): Row(Access.MANAGE, ("spare_artifact", "artifact"), ok=204),
    ("GET", "/v1/limits"): Row(Access.READ),
    ("GET", "/v1/plans"): Row(Access.READ, places=PAGE),
    ("POST", "/v1/plans"): Row(Access.ADMIN, ok=201, good=json(name="more")),
    ("GET", "/v1/plans/{id}"): Row(Access.READ, ("plan",)),
    ("PATCH", "/v1/plans/{id}"): Row(Access.ADMIN, ("plan",), good=json(max_running=1000)),
    ("DELETE", "/v1/plans/{id}"): Row(Access.ADMIN, ("spare_plan",), ok=204),
    ("GET", "/v1/queues"): Row(Access.READ),
    ("POST", "/v1/queues"): Row(Access.ADMIN, ok=201, good=json(name="more", level=50)),
    ("GET", "/v1/queues/{id}"): Row(Access.READ, ("queue",)),
    ("PATCH", "/v1/queues/{id}"): Row(Access.ADMIN, ("spare_queue",), good=json(level=60)),
    ("POST", "/v1/queues/{id}/pause"): Row(Access.ADMIN, ("spare_queue",)),
    ("POST", "/v1/queues/{id}/resume"): Row(Access.ADMIN, ("spare_queue",)),
    ("DELETE", "/v1/queues/{id}"): Row(Access.ADMIN, ("spare_queue",), ok=204),
    ("GET", "/v1/tiers"): Row(Access.READ),
    ("POST", "/v1/tiers"): Row(Access.MANAGE, ok=201, good=json(name="more", resources=SMALL)),
    ("GET", "/v1/tiers/{id}"): Row(Access.READ, ("tier",)),
    ("PATCH", "/v1/tiers/{id}"): Row(Access.MANAGE, ("tier",), good=json(resources=SMALL)),
    ("DELETE", "/v1/tiers/{id}"): Row(Access.MANAGE, ("tier",), ok=204),
    ("GET", "/v1/downstreams"): Row(Access.READ),
    ("DELETE", "/v1/downstreams/{id}"): Row(Access.MANAGE, ("downstream",), ok=204),
    # Makes one of the same name: it comes after what must not find any.
    ("PUT", "/v1/downstreams/{id}"): Row(
        Access.MANAGE, ("downstream",), unknown=200, good=json(concurrency=3)
    ),
    ("GET", "/v1/tenants"): Row(Access.READ, places=PAGE),
    ("POST", "/v1/tenants"): Row(Access.ADMIN, ok=201, good=json(name="canary-more")),
    ("GET", "/v1/tenants/{id}"): Row(Access.READ, ("tenant", "tenant_id", "spare_tenant")),
    ("PATCH", "/v1/tenants/{id}"): Row(
        Access.ADMIN, ("tenant", "tenant_id"), good=json(plan="free")
    ),
    ("POST", "/v1/tenants/{id}/suspend"): Row(Access.ADMIN, ("spare_tenant", "tenant_id")),
    ("POST", "/v1/tenants/{id}/resume"): Row(Access.ADMIN, ("spare_tenant", "tenant_id")),
    ("DELETE", "/v1/tenants/{id}"): Row(Access.ADMIN, ("spare_tenant", "tenant_id"), ok=204),
    ("GET", "/v1/users"): Row(Access.READ, places=PAGE),
    ("POST", "/v1/users"): Row(
        Access.MANAGE,
        ok=201,
        good=json(name="more"),
        places=(body("user", 201, lambda name: {"name": name}, creates=True),),
    ),
    ("GET", "/v1/users/{id}"): Row(Access.READ, ("user_id", "user")),
    ("PATCH", "/v1/users/{id}"): Row(
        Access.MANAGE, ("user_id", "user"), good=json(scopes=["read"])
    ),
    ("DELETE", "/v1/users/{id}"): Row(Access.MANAGE, ("user_id", "user"), ok=204),
    # What a password and its key are good for is told by test_login; here, both are of no use.
    ("POST", "/v1/login"): Row(
        Access.LOGIN, ok=401, good=json(tenant="nowhere", user="nobody", password="a guess of mine")
    ),
    ("POST", "/v1/logout"): Row(Access.OWN, ok=409),
    ("GET", "/v1/keys"): Row(Access.MANAGE, places=query("cursor", "user", "service", "prefix")),
    ("POST", "/v1/keys"): Row(
        Access.MANAGE,
        ok=201,
        good=json(service="more", scopes=["read"]),
        places=tuple(
            body(
                kind,
                201,
                lambda name, kind=kind: {kind: name, "scopes": ["read"]},
                creates=True,
            )
            for kind in ("user", "service")
        ),
    ),
    ("GET", "/v1/keys/{id}"): Row(Access.MANAGE, ("key_id", "prefix")),
    ("PATCH", "/v1/keys/{id}"): Row(Access.MANAGE, ("key_id", "prefix"), good=json(name="new")),
    ("DELETE", "/v1/keys/{id}"): Row(Access.MANAGE, ("key_id", "prefix"), ok=204),
    ("GET", "/v1/audit"): Row(Access.MANAGE, places=query("cursor", "actor")),
    ("GET", "/v1/nodes"): Row(Access.READ, places=PAGE),
    ("POST", "/v1/nodes"): Row(Access.JOIN, ok=201, good=joining),
    ("GET", "/v1/nodes/{id}"): Row(Access.READ, ("worker",)),
    ("PUT", "/v1/nodes/{id}"): Row(Access.ADMIN, ("node",), good=json(drain=False)),
    ("DELETE", "/v1/nodes/{id}"): Row(Access.ADMIN, ("spare_node",), ok=204),
    ("POST", "/v1/node-tokens"): Row(Access.ADMIN, ok=201, good=json(expires_in="1h")),
    ("POST", "/v1/gateway/poll"): Row(
        Access.NODE, good=message(lambda i, _: wire.PollRequest(incarnation=i, held=[], wait=0))
    ),
    ("POST", "/v1/gateway/heartbeat"): Row(
        Access.NODE, good=message(lambda i, ref: wire.Heartbeat(incarnation=i, held=[]))
    ),
    ("POST", "/v1/gateway/report"): Row(
        Access.NODE, good=message(lambda i, _: wire.ReportRequest(incarnation=i, reports=[]))
    ),
    ("POST", "/v1/gateway/logs"): Row(
        Access.NODE,
        ok=204,
        good=message(lambda i, ref: wire.LogChunk(incarnation=i, ref=ref, offset=0, data=b"x")),
    ),
    ("POST", "/v1/gateway/attempt-key"): Row(
        Access.NODE,
        ok=204,
        good=message(lambda _, ref: wire.AttemptKeyRegistration(ref=ref, digest=bytes(32))),
    ),
    ("POST", "/v1/gateway/inputs"): Row(
        Access.NODE, good=message(lambda _, ref: wire.InputsRequest(ref=ref))
    ),
    ("POST", "/v1/gateway/artifact"): Row(
        Access.NODE, good=message(lambda _, ref: wire.ArtifactRequest(ref=ref))
    ),
    ("POST", "/v1/gateway/preparing"): Row(
        Access.NODE, ok=204, good=message(lambda _, ref: wire.PreparingReport(refs=[ref]))
    ),
    ("POST", "/v1/gateway/running"): Row(
        Access.NODE,
        ok=204,
        good=message(lambda _, ref: wire.RunningReport(measured=[wire.MeasuredUsage(ref, 1.0)])),
    ),
    ("POST", "/v1/gateway/leave"): Row(
        Access.NODE, ok=204, good=message(lambda i, _: wire.LeaveRequest(incarnation=i))
    ),
    ("PUT", "/v1/attempt/stages/{name}"): Row(Access.ATTEMPT, ("text",), good=json(fraction=0.5)),
    ("GET", "/v1/attempt/stages"): Row(Access.ATTEMPT),
    ("POST", "/v1/attempt/tasks"): Row(
        Access.ATTEMPT, ok=201, good=json(command=["true"], idempotency_key="matrix-child")
    ),
    ("PUT", "/v1/attempt/progress"): Row(Access.ATTEMPT, ok=204, good=json(fraction=0.5)),
}
