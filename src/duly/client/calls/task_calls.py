"""The calls about tasks, nodes and resources, described once for both clients."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from duly.client.call import READ_TIMEOUT_SECONDS, Call, encode, format_instant, parse_json
from duly.client.shapes.fleet_shapes import Allocation, Node, NodeToken, Server, Status, TokenUses
from duly.client.shapes.task_shapes import (
    CancelCount,
    DeadLetter,
    Duration,
    Page,
    Reason,
    ResourceFields,
    Task,
    TaskFields,
    TaskFilter,
    TaskListFilter,
    TenantPage,
)
from duly.client.shapes.usage_shapes import UsageReport
from duly.duration import format_duration
from duly.errors import Invalid

PAGE_SIZE = 500
"""The page size of methods that fetch a whole list."""
MAX_LONG_POLL_SECONDS = 25.0
"""The longest that a server delays its response while it waits for a task to end."""
REPEATABLE_FILTERS = frozenset({"status", "label"})
"""The filters that accept several values."""
BATCH_TIMEOUT_SECONDS = 300.0
"""A batch of 100,000 tasks takes a while, and the server sends nothing before the commit."""


def submit(task: TaskFields) -> Call[Task]:
    """Submit a task; without an idempotency key it gets a random one, which makes it retryable."""
    fields = {name: value for name, value in task.items() if value is not None}
    fields.setdefault("idempotency_key", uuid.uuid4().hex)
    return Call("POST", "/v1/tasks", parse_json, body=encode(fields), repeatable=True)


def submit_many(tasks: Iterable[TaskFields], key: str | None) -> Call[list[str]]:
    """Submit all of the tasks or none; the response has their ids, in order."""
    return Call(
        "POST",
        "/v1/tasks/batch",
        lambda body: list(parse_json(body)["ids"]),
        body=encode({"tasks": list(tasks)}),
        headers={"Idempotency-Key": _header_value(key or uuid.uuid4().hex)},
        repeatable=True,
        timeout=BATCH_TIMEOUT_SECONDS,
    )


def list_tasks(
    filters: TaskListFilter, limit: int | None, cursor: str | None
) -> Call[TenantPage[Task]]:
    """List a page of the tasks that match the filters."""
    query = [*_filter_query(filters), *_page_query(limit, cursor)]
    if filters.get("overdue"):
        query.append(("overdue", "true"))
    return _get("/v1/tasks", [*query, *_tenant_query(filters.get("tenant"))])


def get_task(task: str, wait: float = 0.0) -> Call[Task]:
    """Get a task; the server waits up to `wait` seconds for its end (long poll)."""
    seconds = min(wait, MAX_LONG_POLL_SECONDS)
    query = [("wait", f"{seconds:g}")] if seconds > 0 else []
    return _get(_task_path(task), query, timeout=READ_TIMEOUT_SECONDS + seconds)


def wait_for_any(ids: Sequence[str], timeout: float) -> Call[list[str]]:
    """Wait up to `timeout` seconds until at least one of the tasks has ended (long poll)."""
    seconds = min(timeout, MAX_LONG_POLL_SECONDS)
    return Call(
        "POST",
        "/v1/tasks/wait",
        lambda body: list(parse_json(body)["ended"]),
        body=encode({"ids": list(ids), "timeout": seconds}),
        repeatable=True,
        timeout=READ_TIMEOUT_SECONDS + seconds,
    )


def update_task(task: str, fields: TaskFields) -> Call[Task]:
    """Update a task that has not started."""
    return Call("PATCH", _task_path(task), parse_json, body=encode(fields), repeatable=True)


def cancel_task(task: str) -> Call[Task]:
    """Cancel a task, whether it has started or not."""
    return Call("POST", _task_path(task, "cancel"), parse_json, repeatable=True)


def cancel_tasks(filters: TaskFilter) -> Call[CancelCount]:
    """Cancel the tasks that match the filters. Not repeatable: the count would be wrong."""
    return _bulk_action("cancel", filters)


def _bulk_action(verb: str, filters: TaskFilter) -> Call[Any]:
    body: dict[str, Any] = {}
    for name, value in _filter_query(filters):
        body.setdefault(name, []).append(value)
    return Call(
        "POST",
        f"/v1/tasks/{verb}",
        parse_json,
        query=_tenant_query(filters.get("tenant")),
        body=encode({name: v if name in REPEATABLE_FILTERS else v[0] for name, v in body.items()}),
    )


def replay_task(task: str, *, downstream: bool) -> Call[Task]:
    """Submit an ended task again as a new one."""
    return _replay(_task_path(task, "replay"), downstream=downstream)


def _replay(path: str, *, downstream: bool) -> Call[Task]:
    if not downstream:
        return Call("POST", path, parse_json)
    return Call(
        "POST", path, parse_json, body=encode({"downstream": True}), timeout=BATCH_TIMEOUT_SECONDS
    )


def explain(task: str) -> Call[Reason]:
    """Get the reason for a task's status."""
    return _get(_task_path(task, "why"))


def get_result(task: str) -> Call[Any]:
    """Get a task's result."""
    return _get(_task_path(task, "result"))


def read_logs(task: str, attempt: int | None, *, follow: bool = False) -> Call[bytes]:
    """Read or follow the log of an attempt, by default of the latest."""
    query = [("attempt", str(attempt))] if attempt is not None else []
    if follow:
        query.append(("follow", "true"))
    timeout = None if follow else READ_TIMEOUT_SECONDS
    return _get(_task_path(task, "logs"), query, read=bytes, timeout=timeout)


def list_dead_letters(
    reason: str | None, since: Any, limit: int | None, cursor: str | None
) -> Call[Page[Task]]:
    """List a page of dead letters."""
    query = [("reason", reason)] if reason else []
    if since is not None:
        query.append(("since", format_instant(since, "since")))
    return _get("/v1/dead-letters", [*query, *_page_query(limit, cursor)])


def get_dead_letter(task: str) -> Call[DeadLetter]:
    """Get a dead letter."""
    return _get(f"/v1/dead-letters/{_path_segment(task)}")


def replay_dead_letter(task: str, *, downstream: bool) -> Call[Task]:
    """Submit a dead letter again as a new task."""
    return _replay(f"/v1/dead-letters/{_path_segment(task)}/replay", downstream=downstream)


def drop_dead_letter(task: str) -> Call[None]:
    """Drop a task from the dead letters."""
    return Call("DELETE", f"/v1/dead-letters/{_path_segment(task)}", lambda body: None)


def list_nodes(limit: int | None, cursor: str | None) -> Call[Page[Node]]:
    """List a page of nodes."""
    return _get("/v1/nodes", _page_query(limit, cursor))


def list_servers(limit: int | None, cursor: str | None) -> Call[Page[Server]]:
    """List a page of the servers with the duties that each leads."""
    return _get("/v1/servers", _page_query(limit, cursor))


def get_node(node: str) -> Call[Node]:
    """Get a node."""
    return _get(f"/v1/nodes/{_path_segment(node)}")


def drain_node(node: str, *, drain: bool) -> Call[Node]:
    """Drain or undrain a node."""
    return Call(
        "PUT",
        f"/v1/nodes/{_path_segment(node)}",
        parse_json,
        body=encode({"drain": drain}),
        repeatable=True,
    )


def set_capacity(node: str, capacity: ResourceFields | None) -> Call[Node]:
    """Override the capacity that a node's agent reports; None removes the override."""
    return Call(
        "PUT",
        f"/v1/nodes/{_path_segment(node)}",
        parse_json,
        body=encode({"capacity": capacity}),
        repeatable=True,
    )


def remove_node(node: str) -> Call[None]:
    """Remove a node permanently."""
    return Call("DELETE", f"/v1/nodes/{_path_segment(node)}", lambda body: None)


def create_node_token(expires_in: Duration | None, uses: TokenUses | None) -> Call[NodeToken]:
    """Create a join token for new nodes."""
    fields = {"expires_in": expires_in, "uses": uses}
    body = encode({name: value for name, value in fields.items() if value is not None})
    return Call("POST", "/v1/node-tokens", parse_json, body=body)


def list_resources(
    limit: int | None, cursor: str | None, node: str | None, tenant: str | None
) -> Call[TenantPage[Allocation]]:
    """List a page of allocations."""
    on_node = [] if node is None else [("node", node)]
    query = [*on_node, *_page_query(limit, cursor), *_tenant_query(tenant)]
    return _get("/v1/resources", query)


def reserve(
    resources: ResourceFields, node: str | None, expires_in: Duration | None
) -> Call[Allocation]:
    """Reserve resources on a node. Not repeatable: there would be two reservations."""
    body = encode({"resources": resources, "node": node, "expires_in": expires_in})
    return Call("POST", "/v1/resources", parse_json, body=body)


def update_reservation(
    reservation: str, resources: ResourceFields | None, expires_in: Duration | None
) -> Call[Allocation]:
    """Change the amounts of a reservation, or its expiry."""
    fields: dict[str, Any] = {"resources": resources}
    if expires_in is not None:
        fields["expires_in"] = expires_in
    path = f"/v1/resources/{_path_segment(reservation)}"
    return Call("PUT", path, parse_json, body=encode(fields), repeatable=True)


def release(reservation: str) -> Call[None]:
    """Release a reservation."""
    return Call("DELETE", f"/v1/resources/{_path_segment(reservation)}", lambda body: None)


def usage(
    since: str | None,
    until: str | None,
    by: str | Sequence[str],
    tenant: str | None,
    limit: int | None,
    cursor: str | None,
) -> Call[UsageReport]:
    """Get usage and its price for a range of days."""
    query = [("by", ",".join(_as_sequence(by)))] if by else []
    optional_filters = {"since": since, "until": until, "tenant": tenant}
    query += [(name, value) for name, value in optional_filters.items() if value is not None]
    return _get("/v1/usage", [*query, *_page_query(limit, cursor)])


def status(tenant: str | None) -> Call[Status]:
    """Get an overview of the installation."""
    return _get("/v1/status", _tenant_query(tenant))


def healthz() -> Call[bool]:
    """Check whether a server responds."""
    return _get("/healthz", read=lambda body: True)


def wait_timed_out(task: Task, timeout: float | None) -> TimeoutError:
    """Return the error for a task that has not ended within `timeout` seconds."""
    waited = format_duration(timedelta(seconds=timeout or 0))
    return TimeoutError(f"Task {task['id']} is still {task['status']} after {waited}.")


def _get(
    path: str,
    query: Iterable[tuple[str, str]] = (),
    *,
    read: Any = parse_json,
    timeout: float | None = READ_TIMEOUT_SECONDS,
) -> Call[Any]:
    return Call("GET", path, read, query=tuple(query), repeatable=True, timeout=timeout)


def _task_path(task: str, part: str = "") -> str:
    path = f"/v1/tasks/{_path_segment(task)}"
    return f"{path}/{part}" if part else path


def _path_segment(text: str) -> str:
    """Percent-encode an id, so that it stays a single segment of the path."""
    if not text or text in (".", ".."):
        raise Invalid("id", f"{text!r} is not an ID.")
    return quote(text, safe="")


def _header_value(text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise Invalid("idempotency_key", "for several tasks, use printable ASCII characters only.")
    return text


def _filter_query(filters: TaskFilter) -> list[tuple[str, str]]:
    query = [("status", status) for status in _as_sequence(filters.get("status"))]
    query += [("label", f"{name}={value}") for name, value in (filters.get("labels") or {}).items()]
    optional_filters: Mapping[str, str | None] = {
        "name": filters.get("name"),
        "user": filters.get("user"),
        "node": filters.get("node"),
    }
    query += [(name, value) for name, value in optional_filters.items() if value is not None]
    since = filters.get("since")
    return query if since is None else [*query, ("since", format_instant(since, "since"))]


def _as_sequence(value: str | Sequence[str] | None) -> Sequence[str]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value


def _page_query(limit: int | None, cursor: str | None) -> list[tuple[str, str]]:
    query = [] if limit is None else [("limit", str(limit))]
    return query if cursor is None else [*query, ("cursor", cursor)]


def _tenant_query(tenant: str | None) -> tuple[tuple[str, str], ...]:
    return () if tenant is None else (("tenant", tenant),)
