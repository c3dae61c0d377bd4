"""Privilege escalation: unusual spellings, headers and raw HTTP grant no more access."""

import asyncio
from urllib.parse import quote, urlsplit

import pytest

from duly.model.tenant import Scope

WHOLE = (Scope.SUBMIT, Scope.READ, Scope.MANAGE)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW")


@pytest.fixture
async def victim(api, key_for):
    """A tenant with a task that nobody else may see."""
    own = api.with_key(await key_for("canary", "canary-kim", *WHOLE))
    own.task = (await own.submit(name="canary", run_at="2100-01-01T00:00:00Z"))["id"]
    return own


@pytest.fixture
async def attacker(api, key_for, victim):
    """A tenant's own administrator, of another tenant."""
    return api.with_key(await key_for("acme", "kim", *WHOLE))


SPELLINGS = [
    "tenant=canary",
    "%74enant=canary",
    "tenan%74=canary",
    "%74%65%6e%61%6e%74=%63%61%6e%61%72%79",
    "tenant=acme&tenant=canary",
    "tenant=canary&tenant=acme",
    "tenant=&tenant=canary",
    "limit=1&tenant=canary",
    "&&tenant=canary",
    "tenant=canary#",
    "tenant",
    "tenant=",
]
"""Ways to name a tenant that mean it, and are refused as such."""
STRANGE = [
    "tenant[]=canary",
    "TENANT=canary",
    "Tenant=canary",
    "tenant%00=canary",
    "tenant%20=canary",
    "+tenant=canary",
    "%2574enant=canary",
    "ten%C2%ADant=canary",
    "t%C3%A9nant=canary",
    "\uff54enant=canary",
    "tenant_id=1",
    "tenant.name=canary",
    "limit=1;tenant=canary",
    "tenant;=canary",
]
"""Ways that mean nothing, and are refused as what does not exist."""


async def test_no_spelling_of_another_tenant_is_taken(attacker, victim):
    for query in SPELLINGS + STRANGE:
        for path in ("/v1/tasks", f"/v1/tasks/{victim.task}"):
            query = query if query.isascii() else quote(query, safe="=")
            status, error = await attacker.refused("GET", f"{path}?{query}")
            expected = {403} if query in SPELLINGS else {403, 422}
            assert status in expected, query
            assert victim.task not in str(error), query


async def test_an_administrator_names_one_tenant_or_none(api, victim):
    found = await api.get(f"/v1/tasks/{victim.task}?tenant=canary")
    assert found["tenant"] == "canary"
    for query in SPELLINGS[4:7]:
        assert (await api.refused("GET", f"/v1/tasks?{query}"))[0] == 422
    assert (await api.refused("GET", "/v1/tasks?tenant=Canary"))[0] == 404
    assert (await api.refused("GET", "/v1/tasks?tenant=canary%20"))[0] == 404


IDS = [
    "{}%20", "%20{}", "+{}", "-{}", "0{}", "{}.0", "{}e0", "0x{:x}", "{}%00", "{}%0a", "{},1",
    "{};1", "{}%2f..%2f{}", "../tasks/{}", "%2e%2e/tasks/{}", "{}?", "{}'--", "{}%23",
]  # fmt: skip
LARGE = [2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30, 10**4000]


async def test_no_spelling_of_an_id_finds_what_is_anothers(attacker, victim):
    number = int(victim.task)
    for text in [spelling.format(number, number) for spelling in IDS] + [
        str(number + span) for span in (2**32, 2**63, 2**64, 10**30)
    ]:
        for suffix in ("", "/result", "/logs", "/attempts", "/why"):
            answer = await attacker.call("GET", f"/v1/tasks/{text}{suffix}")
            assert answer.status_code in (404, 405, 422), text
            assert "canary" not in answer.text.replace(text, ""), text


async def test_an_id_beyond_every_bound_is_unknown(attacker):
    for number in (*LARGE, *(-one for one in LARGE), 0, -1):
        for path in ("/v1/tasks", "/v1/dead-letters", "/v1/resources"):
            assert (await attacker.refused("GET", f"{path}/{number}"))[0] == 404, number


OVERRIDES = [
    {"x-http-method-override": "DELETE"},
    {"x-method-override": "DELETE"},
    {"x-http-method": "DELETE"},
    {"x-original-url": "/healthz"},
    {"x-rewrite-url": "/healthz"},
    {"x-forwarded-prefix": "/healthz"},
    {"x-forwarded-for": "127.0.0.1"},
    {"x-real-ip": "127.0.0.1"},
    {"forwarded": "for=127.0.0.1;host=duly"},
    {"x-tenant": "canary"},
    {"x-tenant-id": "1"},
    {"x-user": "admin"},
    {"x-scopes": "admin"},
    {"x-forwarded-user": "admin"},
    {"cookie": "key=1; tenant=canary; session=admin"},
]


async def test_no_header_makes_another_request_of_it(api, attacker, victim):
    nobody = api.with_key(None)
    plain = await attacker.refused("GET", f"/v1/tasks/{victim.task}")
    for headers in OVERRIDES:
        path = f"/v1/tasks/{victim.task}"
        assert await attacker.refused("GET", path, headers=headers) == plain, headers
        assert (await nobody.refused("GET", path, headers=headers))[0] == 401, headers
        own = await victim.call("GET", path, headers=headers)
        assert (own.status_code, own.json()["status"]) == (200, "scheduled"), headers
    for query in ("_method=DELETE", "method=DELETE", "key=x", "access_token=x", "scopes=admin"):
        assert (await victim.refused("GET", f"/v1/tasks/{victim.task}?{query}"))[0] == 422


BODIES = [
    {"tenant": "canary"},
    {"tenant_id": 1},
    {"user": "canary-kim"},
    {"user_id": 1},
    {"id": "1"},
    {"status": "done"},
    {"scopes": ["admin"]},
    {"plan": "unlimited"},
    {"node": "node-a"},
    {"admitted_by": "server-9"},
    {"labels": {"tenant": "canary"}, "tenant": None},
]


async def test_nothing_in_a_task_makes_it_anothers(attacker, victim):
    for fields in BODIES:
        body = {"command": ["true"], **fields}
        assert (await attacker.refused("POST", "/v1/tasks", json=body))[0] in (403, 422), fields
        batch = {"tasks": [{"command": ["true"]}, body]}
        assert (await attacker.refused("POST", "/v1/tasks/batch", json=batch))[0] in (403, 422)
        status, _ = await victim.refused("PATCH", f"/v1/tasks/{victim.task}", json=fields)
        assert status in (403, 422), fields
    assert (await attacker.get("/v1/tasks"))["items"] == []


async def test_the_last_of_two_equal_names_counts_and_is_checked(attacker):
    """Whoever reads a body twice must read the same."""
    body = b'{"command": ["true"], "name": "first", "name": "last"}'
    answer = await attacker.call("POST", "/v1/tasks", content=body)
    assert (answer.status_code, answer.json()["name"]) == (201, "last")
    later = {"run_at": "2100-01-01T00:00:00Z"}
    task = (await attacker.submit(**later))["id"]
    body = b'{"name": "good", "name": "bad\\u0000"}'
    assert (await attacker.refused("PATCH", f"/v1/tasks/{task}", content=body))[0] == 422
    body = b'{"name": "first", "name": "last"}'
    answer = await attacker.call("PATCH", f"/v1/tasks/{task}", content=body)
    assert answer.json()["name"] == "last"


async def test_every_method_at_every_path_is_declared_or_refused(api, routes_of):
    nobody = api.with_key(None)
    for path, methods in routes_of(api).items():
        for method in set(METHODS) - methods:
            answer = await nobody.call(method, path.replace("{id}", "1"))
            assert answer.status_code in (401, 404, 405), (method, path)


@pytest.fixture
def routes_of():
    """Return the methods of every path of an API."""

    def routes(api):
        found = {}
        for path, route in api.client._transport.app.routes:
            found.setdefault(path, set()).add(route.operation.method)
        return found

    return routes


async def exchange(url, request):
    """Send bytes as they are, and return all that comes back until the server hangs up."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(request)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return answer


def smuggled(key):
    """Return heads that a proxy and a server might read differently."""
    good = f"Authorization: Bearer {key}"
    return {
        "two keys": [good, "Authorization: Bearer wrong"],
        "two keys, the good one last": ["Authorization: Bearer wrong", good],
        "the same key twice": [good, good],
        "two keys in one": [f"{good}, Bearer wrong"],
        "two kinds": ["Authorization: Basic YTpi", good],
        "a space before the colon": [f"Authorization : Bearer {key}"],
        "a folded line": ["Authorization: Bearer", f" {key}"],
        "an underscore": [f"Authorization_: Bearer {key}"],
        "another header": [f"Proxy-Authorization: Bearer {key}"],
        "a NUL": [f"Authorization: Bearer {key}\0"],
        "a bare return": [f"X: y\rAuthorization: Bearer {key}"],
    }


async def test_no_trick_with_headers_lets_anybody_in(served):
    url, key = served
    for name, lines in smuggled(key).items():
        head = "\r\n".join(["GET /v1/tasks HTTP/1.1", "Host: a", *lines, "Connection: close"])
        answer = await exchange(url, f"{head}\r\n\r\n".encode())
        assert answer.split(b" ", 2)[1] in (b"400", b"401"), (name, answer[:200])


LENGTHS = [
    ("Content-Length: 4", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Content-Length: 4"),
    ("Content-Length: 4", "Content-Length: 0"),
    ("Content-Length: -1",),
    ("Content-Length: 0x4",),
    ("Content-Length: 99999999999999999999",),
    ("Transfer-Encoding: chunked, identity",),
    ("Transfer-Encoding: xchunked",),
]


async def test_one_request_is_never_read_as_two(served):
    """What a proxy takes for the body must not be taken for a request of somebody else."""
    url, key = served
    inner = f"GET /v1/servers HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n"
    for lines in LENGTHS:
        head = "\r\n".join(["POST /healthz HTTP/1.1", "Host: a", *lines, "Connection: close"])
        answer = await exchange(url, f"{head}\r\n\r\n0\r\n\r\n{inner}".encode())
        assert answer.count(b"HTTP/1.1 ") <= 1, lines
        assert b"server-" not in answer, lines
