"""The objects of a tenant: one of every kind that a route can name.

Every word of it holds the tenant's own name, so that one look at an answer tells
whether anything of that tenant is in it.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from duly import wire
from duly.api.requests.query import decode_cursor, encode_cursor
from duly.model.task import Outcome
from duly.model.tenant import Scope
from duly.store.accounts.tenants import generate_key

LATER = "2100-01-01T00:00:00Z"
SMALL = {"cpu": 0.1, "memory_mb": 16}
ALL = (Scope.SUBMIT, Scope.READ, Scope.MANAGE)


@dataclass(slots=True)
class Holding:
    """A tenant's things by kind, as they are written in a path, a query or a body."""

    tenant: str
    api: Any
    """The API for its own administrator."""
    key: str = ""
    things: dict[str, str] = field(default_factory=dict)
    attempt: wire.AttemptRef | None = None
    """The one that runs."""

    def __getitem__(self, kind: str) -> str:
        return self.things[kind]

    @property
    def ids(self) -> set[str]:
        """Return the ids that nobody else may ever see."""
        return {text for text in self.things.values() if text.isdigit() and len(text) > 9}


class Runner:
    """A node on which attempts begin one by one and stay where the test leaves them."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self._held: list[wire.AttemptRef] = []

    async def start(self, task: str) -> wire.AttemptRef:
        """Take the attempt at `task`, and whatever comes before it."""
        while not (found := [ref for ref in self._held if str(ref.task) == task]):
            orders = await self.agent.poll(self._held)
            self._held += [start.ref for start in orders.start]
        return found[0]

    async def finish(self, ref: wire.AttemptRef, words: bytes, exit_code: int) -> None:
        """End an attempt, which leaves `words` wherever it can."""
        outcome = Outcome.FAILED if exit_code else Outcome.SUCCEEDED
        await self.agent.log(ref, 0, words)
        result = b'"%s"' % words
        assert await self.agent.finish(ref, outcome, exit_code, log=words, result=result)
        self._held.remove(ref)


async def settle(api: Any, runner: Runner, key_for: Any, tenant: str) -> Holding:
    """Make a tenant that has everything; `runner` runs what has to have run."""
    key = await key_for(tenant, f"{tenant}-kim", *ALL)
    own = Holding(tenant, api.with_key(key), key)
    own.things |= await _plans(api, tenant)
    own.things |= {"name": f"{tenant}-name", "user": f"{tenant}-kim", "label": f"of={tenant}"}
    own.things |= {"tenant": tenant, "text": tenant}
    for kind, words in (("artifact", tenant), ("spare_artifact", f"{tenant}-spare")):
        own.things[kind] = await _upload(own, words.encode())
    for kind, exit_code in (("done", 0), ("dead", 3), ("running", None)):
        own.things[kind] = await submit(own, max_attempts=1, artifact=own["artifact"])
        own.attempt = await runner.start(own[kind])
        if exit_code is not None:
            await runner.finish(own.attempt, tenant.encode(), exit_code)
    own.things["scheduled"] = await submit(own, run_at=LATER)
    own.things["task"] = await submit(own, requires={"at": tenant}, idempotency_key=tenant)
    own.things["idempotency_key"] = tenant
    own.things["graph"] = await _graph(own)
    own.things["worker"] = await _worker(api, own, key_for)
    own.things["reservation"] = await _reserve(own)
    own.things["schedule"] = await _schedule(own)
    own.things |= await _people(api, own)
    own.things["downstream"] = f"{tenant}-downstream"
    await own.api.call(
        "PUT", f"/v1/downstreams/{own['downstream']}", json={"concurrency": 2, "rate": "9/s"}
    )
    own.things["tier"] = await _create(own.api, "/v1/tiers", f"{tenant}-tier", resources=SMALL)
    return own


async def submit(own: Holding, **task: Any) -> str:
    """Submit a task that has the name of its tenant wherever there is room for words."""
    words = {
        "command": ["echo", own.tenant],
        "name": task.pop("name", f"{own.tenant}-name"),
        "labels": {"of": own.tenant},
        "env": {"SECRET": own.tenant},
        "resources": {"cpu": 0.1, "memory_mb": 16, "disk_mb": 16},
    }
    told: dict[str, Any] = await own.api.submit(**words, **task)
    return str(told["id"])


async def _upload(own: Holding, data: bytes) -> str:
    sha256 = hashlib.sha256(data).hexdigest()
    answer = await own.api.call("PUT", f"/v1/artifacts/{sha256}", content=data)
    assert answer.status_code == 201, answer.text
    return sha256


async def _graph(own: Holding) -> str:
    task = {"command": ["echo", own.tenant], "name": own.tenant, "requires": {"at": own.tenant}}
    body = {"name": own.tenant, "tasks": [{**task, "ref": own.tenant}]}
    answer = await own.api.call("POST", "/v1/graphs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def _worker(api: Any, own: Holding, key_for: Any) -> str:
    """Let a worker of the tenant join."""
    key = await key_for(own.tenant, f"{own.tenant}-node", Scope.NODE)
    name = f"{own.tenant}-worker"
    body = {
        "name": name,
        "key": generate_key("dulynode"),
        "capacity": {"extra": {"slots": 1}},
        "functions": [f"{own.tenant}:function"],
    }
    answer = await api.with_key(key).call("POST", "/v1/nodes", json=body)
    assert answer.status_code == 201, answer.text
    return name


async def _reserve(own: Holding) -> str:
    answer = await own.api.call("POST", "/v1/resources", json={"resources": {"cpu": 0.1}})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def _schedule(own: Holding) -> str:
    """Make a schedule that begins by itself in a hundred years, and had times before that."""
    task = {"command": ["echo", own.tenant], "name": own.tenant, "env": {"SECRET": own.tenant}}
    asked = {"name": own.tenant, "task": task, "every": "1h", "start_at": "2026-01-01T00:00:00Z"}
    made = await _make(own.api, "/v1/schedules", **asked)
    path = f"/v1/schedules/{made['id']}"
    answer = await own.api.call("PATCH", path, json={"next_run_at": LATER})
    assert answer.status_code == 200, answer.text
    return str(made["id"])


async def _plans(api: Any, tenant: str) -> dict[str, str]:
    """Give a tenant a plan that nobody else has, and make one that no tenant has."""
    plans = {kind: f"{tenant}-{kind.replace('_', '-')}" for kind in ("plan", "spare_plan")}
    for name in plans.values():
        await _create(api, "/v1/plans", name)
    async with api.components.database.connection() as conn:
        await conn.execute("update tenants set plan = $2 where name = $1", tenant, plans["plan"])
    return plans


async def _people(api: Any, own: Holding) -> dict[str, str]:
    """Make a user and a key of a service, and a tenant beside this one that has nothing."""
    tenant = own.tenant
    await _create(api, "/v1/tenants", f"{tenant}-spare")
    user = await _make(own.api, "/v1/users", name=f"{tenant}-lee")
    asked = {"service": f"{tenant}-service", "scopes": ["read"], "name": f"{tenant}-key"}
    key = await _make(own.api, "/v1/keys", **asked)
    return {
        "tenant_id": (await own.api.get(f"/v1/tenants/{tenant}"))["id"],
        "spare_tenant": f"{tenant}-spare",
        "user_id": user["id"],
        "key_id": key["id"],
        "prefix": key["prefix"],
        "service": asked["service"],
        "actor": f"{tenant}/{tenant}-kim",
    }


async def _create(api: Any, path: str, name: str, **body: Any) -> str:
    await _make(api, path, name=name, **body)
    return name


async def _make(api: Any, path: str, **body: Any) -> dict[str, Any]:
    answer = await api.call("POST", path, json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def unknown(kind: str, own: Holding) -> str:
    """Return what looks like `own`'s thing of that kind and is nobody's."""
    before = min(int(one) for one in own.ids) - 1
    if kind == "cursor":
        return encode_cursor(decode_cursor(own[kind]) + 1)
    if "artifact" in kind:
        return hashlib.sha256(b"nobody's").hexdigest()
    if kind == "prefix":
        return own[kind][:-4] + "zzzz"
    if not own[kind].isdigit():
        return own[kind].replace(own.tenant, "x" * len(own.tenant))
    return str(before if own[kind] in own.ids else int(own[kind]) + 1000)
