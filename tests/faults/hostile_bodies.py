"""Request bodies that are small on the wire and large once they are decoded."""

from collections.abc import Iterator
from typing import NamedTuple

BATCH = "/v1/tasks/batch"
SMALL_TASK = b'{"command":["a"],"ref":"r#"}'
TYPICAL_TASK = (
    b'{"ref":"task-#","name":"encode","command":["sh","-c","encode /in/#.mp4, then /out/#.mp4"],'
    b'"labels":{"team":"blue","stage":"encode"},"env":{"SOURCE":"/data/in/#","QUALITY":"high"},'
    b'"max_attempts":3,"execution_cap":"10m","delay_tolerance":"5m","tier":"basic",'
    b'"idempotency_key":"key-#"}'
)


class HostileBody(NamedTuple):
    """A request whose body takes a lot of memory if it is decoded without bounds."""

    name: str
    method: str
    path: str
    body: bytes
    statuses: tuple[int, ...] = (400, 413, 422)
    media_type: str = "application/json"


def repeated(before: bytes, item: bytes, after: bytes, size: int) -> bytes:
    """Return about `size` bytes of repeated `item`s, in which % is replaced by a number."""
    if b"%" not in item:
        return before + item * (size // len(item)) + item.rstrip(b",") + after
    count = size // (len(item) + 5)
    return before + b"".join(item % n for n in range(count)) + (item % count).rstrip(b",") + after


def batch_bodies(size: int) -> Iterator[HostileBody]:
    """Yield bodies for the routes that accept many tasks."""
    items = {
        "empty objects": b"{},",
        "empty lists": b"[],",
        "numbers": b"1,",
        "objects with a field": b'{"":0},',
        "smallest tasks": b'{"command":["a"]},',
        "tasks with an unknown field": b'{"x":[[]]},',
    }
    for name, item in items.items():
        body = repeated(b'{"tasks":[', item, b"]}", size)
        yield HostileBody(f"batch of {name}", "POST", BATCH, body)
        yield HostileBody(f"graph of {name}", "POST", "/v1/graphs", body)
        body = repeated(b'{"tasks":[', item, b"", size)
        yield HostileBody(f"batch of {name}, cut off", "POST", BATCH, body)
    by_ref = repeated(b'{"tasks":{', b'"%d":{},', b"}}", size)
    yield HostileBody("graph of empty objects by name", "POST", "/v1/graphs", by_ref)
    for name, body in task_bodies(size):
        yield HostileBody(f"batch with {name}", "POST", BATCH, b'{"tasks":[%b]}' % body)
        yield HostileBody(
            f"graph with defaults with {name}",
            "POST",
            "/v1/graphs",
            b'{"tasks":[],"defaults":%b}' % body,
        )
    item_of_many = b'{"command":[' + b'"aa",' * 9_999 + b'"aa"]},'
    body = repeated(b'{"tasks":[', item_of_many, b"]}", size)
    yield HostileBody("batch of long commands", "POST", BATCH, body, (201, 413))
    item_of_many = (
        b'{"command":["a"],"env":{' + b",".join(b'"A%d":"a"' % n for n in range(1000)) + b"}},"
    )
    body = repeated(b'{"tasks":[', item_of_many, b"]}", size)
    yield HostileBody("batch of full environments", "POST", BATCH, body, (201, 413))
    item_of_many = (
        b'{"command":["a"],"labels":{' + b",".join(b'"%d":""' % n for n in range(50)) + b"}},"
    )
    body = repeated(b'{"tasks":[', item_of_many, b"]}", size)
    yield HostileBody("batch of many labels", "POST", BATCH, body, (201, 413))
    item_of_many = b'{"command":["a"],"depends_on":[' + b",".join(
        b'"%d"' % n for n in range(1, 9999)
    )
    body = repeated(b'{"tasks":[', item_of_many + b"]},", b"]}", size)
    yield HostileBody("batch of many upstreams", "POST", BATCH, body, (413, 422))


def task_bodies(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield single tasks, with a description."""
    yield "short arguments", repeated(b'{"command":[', b'"a",', b"]}", size)
    yield "empty arguments", repeated(b'{"command":[', b'"",', b"]}", size)
    yield "variables", repeated(b'{"command":["a"],"env":{', b'"A%d":"",', b"}}", size)
    yield "labels", repeated(b'{"command":["a"],"labels":{', b'"a%d":"",', b"}}", size)
    yield "upstreams", repeated(b'{"command":["a"],"depends_on":[', b'"1",', b"]}", size)
    as_objects = repeated(b'{"command":["a"],"depends_on":[', b'{"task":"1"},', b"]}", size)
    yield "upstreams as objects", as_objects
    yield "an unknown field", repeated(b'{"x":[', b"{},", b"]}", size)
    yield "an unknown field of lists", repeated(b'{"x":[', b"[],", b"]}", size)
    yield "an unknown field of objects", repeated(b'{"x":[', b'{"":[]},', b"]}", size)
    yield "unknown fields", repeated(b'{"command":["a"],', b'"%d":0,', b"}", size)
    yield "nesting", b'{"x":' + b"[" * size
    yield "a wrong type before much", repeated(b'{"command":1,"x":[', b"[],", b"]}", size)
    yield "half a surrogate after much", repeated(b'{"x":[', b"[],", b'],"y":"\\ud800"}', size)
    yield "bad UTF-8 after much", repeated(b'{"x":[', b"[],", b'],"y":"\xff"}', size)
    yield "floats", repeated(b'{"command":["a"],"x":[', b"1e9,", b"]}", size)


def single_bodies(size: int, task: str, schedule: str) -> Iterator[HostileBody]:
    """Yield bodies for the other routes; `task` and `schedule` must exist."""
    for name, body in task_bodies(size):
        yield HostileBody(f"task with {name}", "POST", "/v1/tasks", body)
        yield HostileBody(f"change with {name}", "PATCH", f"/v1/tasks/{task}", body)
        body_of_schedule = b'{"daily":"06:30","task":%b}' % body
        yield HostileBody(f"schedule with {name}", "POST", "/v1/schedules", body_of_schedule)
        body_of_schedule = b'{"graph":{"tasks":[%b]}}' % body
        yield HostileBody(
            f"schedule changed to {name}", "PATCH", f"/v1/schedules/{schedule}", body_of_schedule
        )
    for name, method, path, before in (
        ("plan", "POST", "/v1/plans", b'{"name":"a","tolerances":{%b}}'),
        ("plan's tiers", "PATCH", "/v1/plans/standard", b'{"tiers":[%b]}'),
        ("filter", "POST", "/v1/tasks/cancel", b'{"labels":{%b}}'),
        ("key", "POST", "/v1/keys", b'{"scopes":[%b]}'),
        ("join", "POST", "/v1/nodes", b'{"name":"a","labels":{%b}}'),
        ("graph of a schedule", "POST", "/v1/schedules/preview", b'{"graph":{"tasks":[%b]}}'),
        ("login", "POST", "/v1/login", b'{"x":[%b]}'),
    ):
        item = b'"%d":0,' if before.endswith(b"{%b}}") else b"{},"
        inner = repeated(b"", item, b"", size)
        statuses = (400, 401, 404, 413, 422)
        yield HostileBody(f"{name} of many", method, path, before % inner, statuses)


def node_messages(size: int) -> Iterator[HostileBody]:
    """Yield messages of a node in msgpack, in which a container can be a single byte."""
    for name, item in (("empty maps", b"\x80"), ("empty lists", b"\x90"), ("refs", b"\x93\1\1\1")):
        count = (size // len(item)).to_bytes(4)
        body = b"\x82\xa4held\xdd" + count + item * (size // len(item)) + b"\xabincarnation\x01"
        yield HostileBody(
            f"heartbeat with {name}", "POST", "/v1/gateway/heartbeat", body, (400, 409, 413),
            "application/x-msgpack",
        )  # fmt: skip
        body = b"\x81\xa1x\xdd" + count + item * (size // len(item))
        yield HostileBody(
            f"report with unknown {name}", "POST", "/v1/gateway/report", body, (400, 409, 413),
            "application/x-msgpack",
        )  # fmt: skip
