"""Hostile requests make no route fail and delay no other client."""

import asyncio
import gzip
import resource
from urllib.parse import urlsplit

import pytest

from duly.config import RequestSettings, Settings

LIMIT = 2**16
IDLE = 1000


@pytest.fixture
def settings():
    return Settings(requests=RequestSettings(body_limit=LIMIT, batch_limit=2 * LIMIT))


def deep(opening, closing, depth=100_000):
    return (opening * depth + closing * depth)[:LIMIT]


NOT_JSON = {
    "nothing": b"",
    "half an object": b'{"name": ',
    "deep lists": deep(b"[", b"]"),
    "deep objects": deep(b'{"name":', b"}"),
    "deep lists in a field": b'{"name":' + deep(b"[", b"]", 30_000) + b"}",
    "not a number": b'{"name": NaN, "burst": NaN}',
    "infinite": b'{"burst": Infinity, "expires_in": -Infinity}',
    "not UTF-8": b'{"name": "\xff\xfe"}',
    "half a surrogate pair": rb'{"name": "\ud800"}',
    "a NUL between": b'{"name": "a"}\0',
    "gzip": gzip.compress(b'{"name": "a"}'),
    "UTF-16": '{"name": "a"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"name": "a"}',
    "a form": b"name=a&scopes=admin",
    "XML": b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
}
WRONG = {
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "text": b'"name"',
    "an unknown field": b'{"zzz": 1}',
    "a proto": b'{"__proto__": {"scopes": ["admin"]}, "constructor": 1}',
}
VALUES = (
    b"null", b"true", b"-1", b"0", b"1e308", b"1e400", b"-1e400", b"9" * 400, b"9" * 5000, b"0.1",
    b"9223372036854775808", b"-9223372036854775809", b"2147483648", b'""', b'"\\u0000"', b'" "',
    b'"' + b"x" * 10_000 + b'"', b'"\\ud83d\\ude00"', b"[]", b"[[]]", b"[null]", b"{}",
    b'{"": ""}', b'{"a": {"b": {"c": 1}}}', b'["admin", "admin"]',
)  # fmt: skip
"""What is put into every field of every body."""


def bodies(api):
    """Return method, path and the fields of every route that takes JSON."""
    found = {}
    for path, methods in api.document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            reference = content.get("application/json", {}).get("schema", {}).get("$ref")
            # The result of a stage may be any JSON, and has no fields.
            if reference is not None:
                name = reference.rpartition("/")[2]
                fields = api.document["components"]["schemas"][name]["properties"]
                found[method.upper(), path] = list(fields)
    return found


@pytest.fixture
async def described(api):
    """The API for an administrator, with its own description at hand."""
    api.document = await api.get("/v1/openapi.json")
    return api


async def send(api, method, path, body):
    """Send a body to a route, for a thing that may exist or not; it must not fail by it."""
    path = path.replace("{id}", "1").replace("{name}", "basic")
    answer = await api.call(method, path, content=body)
    assert answer.status_code < 500, (method, path, body[:100], answer.text)
    if answer.status_code >= 400:
        assert answer.json()["error"].keys() == {"code", "message", "details"}
        assert len(answer.content) < 2000, (method, path, body[:100])
    return answer.status_code


async def test_a_body_that_is_no_good_is_refused_at_every_route(described):
    routes = bodies(described)
    assert len(routes) > 8
    for method, path in routes:
        for name, body in NOT_JSON.items():
            status = await send(described, method, path, body)
            # Where nothing needs to be said, nothing is a good body, whatever it is about; a
            # login takes a small one.
            refusals = (400, 401, 413) if path == "/v1/login" else (400, 401)
            is_good = name == "nothing" and (status < 400 or status == 404)
            assert status in refusals or is_good, (path, name)
        for name, body in WRONG.items():
            assert await send(described, method, path, body) in (400, 401, 404, 422), (path, name)
        large = b'{"name": "' + b"x" * 2 * LIMIT + b'"}'
        assert await send(described, method, path, large) in (401, 413), path


async def test_no_value_in_any_field_makes_a_route_fail(described):
    for (method, path), fields in bodies(described).items():
        for field in fields:
            for value in VALUES:
                await send(described, method, path, b'{"%s": %s}' % (field.encode(), value))


async def test_headers_of_every_kind_are_survived(described):
    for headers in (
        {"content-encoding": "gzip"},
        {"content-type": "text/plain; charset=utf-7"},
        {"content-type": "multipart/form-data; boundary="},
        {"content-type": "\xff"},
        {"accept": "image/png;q=nan"},
        {"accept-encoding": "*;q=0"},
        {"range": "bytes=0-1,5-"},
        {"if-none-match": "*"},
        {"expect": "200-ok"},
        {"cookie": "=" * 5000},
        {"host": "'; drop table tasks; --"},
        {"idempotency-key": "\xff"},
    ):
        raw = {name: value.encode("latin-1") for name, value in headers.items()}
        for method, path in (("GET", "/v1/tasks"), ("POST", "/v1/tasks"), ("GET", "/healthz")):
            answer = await described.call(method, path, headers=raw, content=b"{}")
            assert answer.status_code < 500, (headers, path)


class Line:
    """A connection on which bytes are sent as they are."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, url):
        place = urlsplit(url)
        return cls(*await asyncio.open_connection(place.hostname, place.port))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    async def status(self):
        """Return the status of the next answer."""
        async with asyncio.timeout(30):
            return int((await self.reader.readline()).split(b" ", 2)[1])


def head(key, *lines, method="POST", path="/v1/tasks"):
    lines = [f"{method} {path} HTTP/1.1", "Host: a", f"Authorization: Bearer {key}", *lines]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def test_a_chunked_body_without_end_is_refused_at_the_limit(served):
    url, key = served
    async with await Line.open(url) as line:
        line.writer.write(head(key, "Transfer-Encoding: chunked"))
        for _ in range(LIMIT // 4096 + 1):
            line.writer.write(b"1000\r\n" + b" " * 4096 + b"\r\n")
        assert await line.status() == 413


@pytest.fixture
def many_files():
    """Let this process hold enough open files for both ends of many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4 * IDLE
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"a process here may open only {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_thousand_who_dawdle_keep_nobody_from_working(many_files, real, served):
    """Some send nothing, some half of a head, some half of a body, some a request and no more."""
    url, key = served
    half = b'{"command": '
    begun = (
        b"",
        b"GET /v1/ta",
        head(key, "Content-Length: 100") + half,
        head(key, method="GET"),
    )
    lines = [await Line.open(url) for _ in range(IDLE)]
    for index, line in enumerate(lines):
        line.writer.write(begun[index % 100] if index % 100 < len(begun) else b"")
    tasks = [real.submit(name=f"task-{number}") for number in range(50)]
    async with asyncio.timeout(60):
        ids = {task["id"] for task in await asyncio.gather(*tasks)}
        for task in ids:
            assert (await real.get(f"/v1/tasks/{task}"))["status"] == "waiting"
    assert len(ids) == 50
    assert (await real.call("GET", "/readyz")).status_code == 200
    for line in lines:
        line.writer.close()
