"""Applies an action to all live tasks that match a filter, in batches."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from duly import clock
from duly.api.requests.body import decode, read_json_body
from duly.api.requests.lookups import listing_connection, tenant_connection
from duly.api.requests.query import parse_labels, parse_since, parse_statuses, query_of
from duly.api.routes import components_of, credential_of
from duly.errors import Invalid
from duly.model.requests.texts import check_text
from duly.model.task import FINAL_STATUSES, Status
from duly.store.database import Connection
from duly.store.tasks import views
from duly.store.tasks.views import TaskFilter

BATCH_SIZE = 500
MAX_CALL_SECONDS = 20.0
"""After this a call stops and reports that there is more to do."""

T = TypeVar("T")


class TaskFilterRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tasks/cancel, /pause and /resume: a filter of live tasks."""

    status: str | list[str] | None = None
    name: str | None = None
    label: str | list[str] | None = None
    labels: dict[str, str] | None = None
    user: str | None = None
    node: str | None = None
    since: str | None = None


FILTER_DECODER = msgspec.json.Decoder(TaskFilterRequest)


async def apply_in_batches(
    request: Request, verb: str, action: Callable[[list[int]], Coroutine[Any, Any, T]]
) -> tuple[list[T], bool]:
    """Apply `action` to the tasks that match the filter in the body, newest first.

    Return the result of each batch, and whether tasks are left for which there was no time.
    `verb` names the action in the error about an empty filter.
    """
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    body = decode(await read_json_body(request), FILTER_DECODER)
    async with tenant_connection(components, credential) as conn:
        task_filter = await _parse_filter(conn, body, verb)
    results: list[T] = []
    if task_filter.statuses and not task_filter.statuses - FINAL_STATUSES:
        return results, False
    live_statuses = (task_filter.statuses or frozenset(Status)) - FINAL_STATUSES
    task_filter = msgspec.structs.replace(task_filter, statuses=live_statuses)
    before, deadline = views.MAX_ID, clock.monotonic() + MAX_CALL_SECONDS
    while True:
        async with listing_connection(components, credential, by_status=True) as conn:
            ids = await views.pick(
                conn, credential.tenant_id, task_filter, before=before, limit=BATCH_SIZE
            )
        if ids:
            results.append(await components.timeouts.writing(action(ids)))
            before = ids[-1]
        if len(ids) < BATCH_SIZE:
            return results, False
        if clock.monotonic() >= deadline:
            return results, True


async def _parse_filter(conn: Connection, body: TaskFilterRequest, verb: str) -> TaskFilter:
    for name in ("name", "user", "node"):
        if (text := getattr(body, name)) is not None:
            check_text(text, name)
    for name, value in (body.labels or {}).items():
        check_text(name, "labels")
        check_text(value, f"labels.{name}")
    task_filter = TaskFilter(
        statuses=parse_statuses(_as_list(body.status)),
        name=body.name,
        labels={
            **parse_labels([check_text(label, "label") for label in _as_list(body.label)]),
            **(body.labels or {}),
        },
        user=body.user,
        node=body.node,
        since=await parse_since(conn, body.since),
    )
    if task_filter.is_empty:
        raise Invalid(
            "status",
            f"say which tasks to {verb}. Give status, name, label, user, node or since.",
        )
    return task_filter


def _as_list(value: str | list[str] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value
