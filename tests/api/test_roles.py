"""Any request from any caller gets a documented response in time, and never a 5xx.

Every request that schemathesis makes up from the description of the API is sent as each
kind of caller, administrators last. What it names is made up, too, or something that is
there: of the tenant most of the callers belong to, so that it is foreign to the others.
"""

import json
import os
from dataclasses import dataclass, field
from datetime import timedelta

import httpx
import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from duly import wire
from duly.config import LeaseSettings, RequestSettings, Settings
from duly.model.resources import Resources
from duly.store.accounts.tenants import generate_key

EXAMPLES = 40 if os.environ.get("DULY_TORTURE") else 2
ANSWERS_WITHIN = 100
"""Seconds: what takes longer hangs."""
LATER = "2100-01-01T00:00:00Z"
SMALL = {"cpu": 0.1, "memory_mb": 16}
OF_A_TENANT = ["submit", "read", "manage"]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@schemathesis.serializer(wire.MEDIA_TYPE)
def to_msgpack(_, value):
    try:
        return msgspec.msgpack.encode(value)
    except OverflowError:  # a number that msgpack cannot say: then it is something else
        return json.dumps(value).encode()


@schemathesis.deserializer(wire.MEDIA_TYPE)
def from_msgpack(_, response):
    return msgspec.msgpack.decode(response.content)


@dataclass
class Role:
    """Somebody with a key, or without one, and the status that looking at tasks is answered."""

    name: str
    key: str | None
    looking: int
    session: requests.Session = field(default_factory=requests.Session)

    @property
    def headers(self):
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}


class World:
    """A server, and what is there for the callers to name."""

    def __init__(self, admin, key):
        self.url = str(admin.base_url)
        self._admin = admin
        for tenant in ("acme", "globex", "dormant"):
            self.make("/v1/tenants", name=tenant, plan="unlimited")
        self.roles = [
            Role("nobody", None, 401),
            Role("attempt", generate_key("dulyattempt"), 401),
            Role("node", self.node(), 401),
            Role("node scope", self.key("node"), 403),
            Role("read", self.key("read"), 200),
            Role("submit", self.key("submit"), 403),
            Role("manage", self.key("manage"), 403),
            Role("other tenant", self.key(*OF_A_TENANT, tenant="globex"), 200),
            Role("suspended", self.key(*OF_A_TENANT, tenant="dormant"), 200),
            Role("admin", key, 200),
        ]
        self.names = self.things()
        self._admin.post("/v1/tenants/dormant/suspend").raise_for_status()

    def make(self, path, query="", **body):
        answer = self._admin.post(f"{path}{query}", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def key(self, *scopes, tenant="acme"):
        return self.make("/v1/keys", tenant=tenant, scopes=scopes)["key"]

    def node(self):
        token = self.make("/v1/node-tokens", expires_in="1h")["token"]
        capacity = Resources(cpu_milli=4000, memory_mb=4096, disk_mb=4096)
        asked = wire.JoinRequest(
            name="node-a", capacity=wire.capacity(capacity), key=generate_key("dulynode")
        )
        joined = httpx.post(
            f"{self.url}/v1/nodes",
            content=msgspec.json.encode(asked),
            headers={"Authorization": f"Bearer {token}"},
        )
        assert joined.status_code == 201, joined.text
        return asked.key

    def things(self):
        """Make one thing of each kind, and return what they are called."""
        own = "?tenant=acme"
        task = self.make("/v1/tasks", own, command=["true"], run_at=LATER)
        waiting = self.make("/v1/tasks", own, command=["true"], requires={"no": "where"})
        user = self.make("/v1/users", own, name="kim", password="correct horse")
        key = self.make("/v1/keys", own, service="spare", scopes=["read"])
        tier = self.make("/v1/tiers", own, name="acme-tier", resources=SMALL)
        reserved = self.make("/v1/resources", own, resources={"cpu": 0.1})
        named = [task["id"], waiting["id"], user["id"], key["id"], key["prefix"], reserved["id"]]
        return [*named, "kim", tier["name"], "node-a", "acme", "free", "basic"]


@pytest.fixture(name="settings")
def long_leases():
    """The node stays, although it says nothing, and a machine that is slow is not an error."""
    return Settings(
        leases=LeaseSettings(ttl=timedelta(hours=1)),
        requests=RequestSettings(timeout=timedelta(seconds=2 * ANSWERS_WITHIN)),
    )


@pytest.fixture
def world(served):
    url, key = served
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, timeout=30) as admin:
        world = World(admin, key)
        yield world
    for role in world.roles:
        role.session.close()


def looking(world):
    """Return what each caller is told when it looks at tasks."""
    return {
        role.name: httpx.get(f"{world.url}/v1/tasks", headers=role.headers).status_code
        for role in world.roles
    }


def is_lasting(operation):
    """Say whether callers are afterwards as they were: what takes things away comes last."""
    takes_away = operation.path.endswith(("/suspend", "/leave")) or operation.method == "delete"
    return not takes_away


@pytest.mark.timeout(3600 if EXAMPLES > 2 else 240)
def test_whatever_is_sent_by_whomever_the_answer_is_one_that_was_described(world):
    schema = schemathesis.openapi.from_dict(httpx.get(f"{world.url}/v1/openapi.json").json())
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 50
    for operation in filter(is_lasting, operations):
        try_everybody(world, operation)
    assert looking(world) == {role.name: role.looking for role in world.roles}
    for operation in operations:
        if not is_lasting(operation):
            try_everybody(world, operation)


def try_everybody(world, operation):
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), there=st.none() | st.sampled_from(world.names))
    def check(case, there):
        if there is not None and case.path_parameters:
            case.path_parameters["id"] = there
        if case.query.get("tenant") and there is not None:
            case.query["tenant"] = "acme"
        stop_waiting(case)
        case.headers.pop("Authorization", None)
        for role in world.roles:
            case.call_and_validate(
                base_url=world.url,
                session=role.session,
                headers=role.headers,
                checks=CHECKS,
                timeout=ANSWERS_WITHIN,
            )

    check()


def stop_waiting(case):
    """Ask for an answer at once: what waits because it was told to does not hang."""
    case.query.pop("wait", None)
    case.query.pop("follow", None)
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body["wait"] = 0
