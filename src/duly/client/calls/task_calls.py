"""Every call of the API, described once for both clients."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from duly.client.call import READ_TIMEOUT, Call, encode, instant, parse_json
from duly.client.shapes import (
    Allocation,
    Attempt,
    Cancelled,
    DeadLetter,
    Duration,
    Node,
    NodeToken,
    Page,
    Reason,
    ResourceFields,
    Server,
    Status,
    Task,
    TaskFields,
    TaskFilter,
    TokenUses,
    UsageTold,
)
from duly.errors import Invalid

PAGE = 500
"""How many items are asked for at once when all are wanted."""
LONGEST_WAIT = 25.0
"""Seconds that a server holds an answer back for a task to end."""
SEVERAL = frozenset({"status", "label"})
"""The filters that may be given more than once."""
BATCH_TIMEOUT = 300.0
"""A hundred thousand tasks take the server a while, and it says nothing before the commit."""


def submit(task: TaskFields) -> Call[Task]:
    """Store a task; one without an idempotency key gets one, so that it can be sent again."""
    fields = {name: value for name, value in task.items() if value is not None}
    fields.setdefault("idempotency_key", uuid.uuid4().hex)
    return Call("POST", "/v1/tasks", parse_json, body=encode(fields), repeatable=True)


def submit_many(tasks: Iterable[TaskFields], key: str | None) -> Call[list[str]]:
    """Store all of the tasks or none; the answer is their ids, in order."""
    return Call(
        "POST",
        "/v1/tasks/batch",
        lambda body: list(parse_json(body)["ids"]),
        body=encode({"tasks": list(tasks)}),
        headers={"Idempotency-Key": _header(key or uuid.uuid4().hex)},
        repeatable=True,
        timeout=BATCH_TIMEOUT,
    )


def list_tasks(which: TaskFilter, limit: int | None, cursor: str | None) -> Call[Page[Task]]:
    """Ask for a page of the tasks that are meant."""
    return _get("/v1/tasks", [*_filter(which), *_page(limit, cursor)])


def get_task(task: str, wait: float = 0.0) -> Call[Task]:
    """Ask for a task, and let the server wait up to that many seconds for its end."""
    seconds = min(wait, LONGEST_WAIT)
    query = [("wait", f"{seconds:g}")] if seconds > 0 else []
    return _get(_task(task), query, timeout=READ_TIMEOUT + seconds)


def update_task(task: str, fields: TaskFields) -> Call[Task]:
    """Change a task that has not started."""
    return Call("PATCH", _task(task), parse_json, body=encode(fields), repeatable=True)


def cancel_task(task: str) -> Call[Task]:
    """End a task, whether it has started or not."""
    return Call("POST", _task(task, "cancel"), parse_json, repeatable=True)


def cancel_tasks(which: TaskFilter) -> Call[Cancelled]:
    """End the tasks that are meant; the answer is how many. Sent twice, it would miscount."""
    return _to_all("cancel", which)


def _to_all(verb: str, which: TaskFilter) -> Call[Any]:
    body: dict[str, Any] = {}
    for name, value in _filter(which):
        body.setdefault(name, []).append(value)
    return Call(
        "POST",
        f"/v1/tasks/{verb}",
        parse_json,
        body=encode({name: v if name in SEVERAL else v[0] for name, v in body.items()}),
    )


def replay_task(task: str, *, downstream: bool) -> Call[Task]:
    """Submit a task that has ended once more, as a new one."""
    return _replay(_task(task, "replay"), downstream=downstream)


def _replay(path: str, *, downstream: bool) -> Call[Task]:
    if not downstream:
        return Call("POST", path, parse_json)
    return Call("POST", path, parse_json, body=encode({"downstream": True}), timeout=BATCH_TIMEOUT)


def list_attempts(task: str) -> Call[list[Attempt]]:
    """Ask how often a task was tried, and how each attempt ended."""
    return _get(_task(task, "attempts"), read=lambda body: list(parse_json(body)["items"]))


def explain(task: str) -> Call[Reason]:
    """Ask why a task is where it is."""
    return _get(_task(task, "why"))


def get_result(task: str) -> Call[Any]:
    """Ask for the JSON that a task left behind."""
    return _get(_task(task, "result"))


def read_logs(task: str, attempt: int | None, *, follow: bool = False) -> Call[bytes]:
    """Ask for what an attempt has written, the latest unless one is named."""
    query = [("attempt", str(attempt))] if attempt is not None else []
    if follow:
        query.append(("follow", "true"))
    timeout = None if follow else READ_TIMEOUT
    return _get(_task(task, "logs"), query, read=bytes, timeout=timeout)


def list_dead_letters(
    reason: str | None, since: Any, limit: int | None, cursor: str | None
) -> Call[Page[Task]]:
    """Ask for a page of the tasks that failed for good."""
    query = [("reason", reason)] if reason else []
    if since is not None:
        query.append(("since", instant(since, "since")))
    return _get("/v1/dead-letters", [*query, *_page(limit, cursor)])


def get_dead_letter(task: str) -> Call[DeadLetter]:
    """Ask for one dead letter."""
    return _get(f"/v1/dead-letters/{_segment(task)}")


def replay_dead_letter(task: str, *, downstream: bool) -> Call[Task]:
    """Submit a dead letter once more, as a new task."""
    return _replay(f"/v1/dead-letters/{_segment(task)}/replay", downstream=downstream)


def drop_dead_letter(task: str) -> Call[None]:
    """Take a task out of the dead letters."""
    return Call("DELETE", f"/v1/dead-letters/{_segment(task)}", lambda body: None)


def list_nodes(limit: int | None, cursor: str | None) -> Call[Page[Node]]:
    """Ask for a page of the nodes."""
    return _get("/v1/nodes", _page(limit, cursor))


def list_servers() -> Call[Page[Server]]:
    """Ask for the servers, and what each of them leads."""
    return _get("/v1/servers")


def get_node(node: str) -> Call[Node]:
    """Ask for one node."""
    return _get(f"/v1/nodes/{_segment(node)}")


def drain_node(node: str, *, drain: bool) -> Call[Node]:
    """Let a node take no more tasks, or take them again."""
    return Call(
        "PUT",
        f"/v1/nodes/{_segment(node)}",
        parse_json,
        body=encode({"drain": drain}),
        repeatable=True,
    )


def set_capacity(node: str, capacity: ResourceFields | None) -> Call[Node]:
    """Say what a node has, kind by kind; None leaves it to its agent again."""
    return Call(
        "PUT",
        f"/v1/nodes/{_segment(node)}",
        parse_json,
        body=encode({"capacity": capacity}),
        repeatable=True,
    )


def remove_node(node: str) -> Call[None]:
    """Take a node away for good."""
    return Call("DELETE", f"/v1/nodes/{_segment(node)}", lambda body: None)


def create_node_token(expires_in: Duration | None, uses: TokenUses | None) -> Call[NodeToken]:
    """Ask for a token with which new nodes may join."""
    asked = {"expires_in": expires_in, "uses": uses}
    body = encode({name: value for name, value in asked.items() if value is not None})
    return Call("POST", "/v1/node-tokens", parse_json, body=body)


def list_resources(limit: int | None, cursor: str | None) -> Call[Page[Allocation]]:
    """Ask for a page of who has what of the nodes."""
    return _get("/v1/resources", _page(limit, cursor))


def reserve(
    resources: ResourceFields, node: str | None, expires_in: Duration | None
) -> Call[Allocation]:
    """Keep part of a node free of tasks. Sent twice, it would be reserved twice."""
    body = encode({"resources": resources, "node": node, "expires_in": expires_in})
    return Call("POST", "/v1/resources", parse_json, body=body)


def update_reservation(
    reservation: str, resources: ResourceFields | None, expires_in: Duration | None
) -> Call[Allocation]:
    """Change what is reserved, or for how long."""
    fields: dict[str, Any] = {"resources": resources}
    if expires_in is not None:
        fields["expires_in"] = expires_in
    path = f"/v1/resources/{_segment(reservation)}"
    return Call("PUT", path, parse_json, body=encode(fields), repeatable=True)


def release(reservation: str) -> Call[None]:
    """Give back what is reserved."""
    return Call("DELETE", f"/v1/resources/{_segment(reservation)}", lambda body: None)


def usage(
    since: str | None, until: str | None, by: str | Sequence[str], tenant: str | None
) -> Call[UsageTold]:
    """Ask what was used from one day to another, and what it costs."""
    query = [("by", ",".join(_several(by)))] if by else []
    plain = {"since": since, "until": until, "tenant": tenant}
    query += [(name, value) for name, value in plain.items() if value is not None]
    return _get("/v1/usage", query)


def status() -> Call[Status]:
    """Ask for the whole at a glance."""
    return _get("/v1/status")


def healthz() -> Call[bool]:
    """Ask whether a server is there at all."""
    return _get("/healthz", read=lambda body: True)


def _get(
    path: str,
    query: Iterable[tuple[str, str]] = (),
    *,
    read: Any = parse_json,
    timeout: float | None = READ_TIMEOUT,
) -> Call[Any]:
    return Call("GET", path, read, query=tuple(query), repeatable=True, timeout=timeout)


def _task(task: str, part: str = "") -> str:
    path = f"/v1/tasks/{_segment(task)}"
    return f"{path}/{part}" if part else path


def _segment(text: str) -> str:
    """Quote an id, so that whatever it holds stays one segment of the path."""
    if not text or text in (".", ".."):
        raise Invalid("id", f"Not an id: {text!r}.")
    return quote(text, safe="")


def _header(text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise Invalid("idempotency_key", "The key of a batch may hold printable ASCII only.")
    return text


def _filter(which: TaskFilter) -> list[tuple[str, str]]:
    query = [("status", status) for status in _several(which.get("status"))]
    query += [("label", f"{name}={value}") for name, value in (which.get("labels") or {}).items()]
    plain: Mapping[str, str | None] = {
        "name": which.get("name"),
        "user": which.get("user"),
        "node": which.get("node"),
    }
    query += [(name, value) for name, value in plain.items() if value is not None]
    since = which.get("since")
    return query if since is None else [*query, ("since", instant(since, "since"))]


def _several(value: str | Sequence[str] | None) -> Sequence[str]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value


def _page(limit: int | None, cursor: str | None) -> list[tuple[str, str]]:
    query = [] if limit is None else [("limit", str(limit))]
    return query if cursor is None else [*query, ("cursor", cursor)]


def _for(tenant: str | None) -> tuple[tuple[str, str], ...]:
    return () if tenant is None else (("tenant", tenant),)
