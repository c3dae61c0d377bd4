"""What is done to all live tasks that a filter means, in batches."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from duly import clock
from duly.api.body import decode, read_json
from duly.api.query import labels, query_of, since, statuses
from duly.api.reading import picking, reading
from duly.api.routes import credential_of, parts_of
from duly.errors import Invalid
from duly.model.request import check_text
from duly.model.task import FINAL, Status
from duly.store import views
from duly.store.database import Connection
from duly.store.views import TaskFilter

BATCH = 500
LONGEST = 20.0
"""Seconds that one call goes on; more is left for another."""

T = TypeVar("T")


class WhichTasks(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tasks/cancel, /pause and /resume: which live tasks are meant."""

    status: str | list[str] | None = None
    name: str | None = None
    label: str | list[str] | None = None
    labels: dict[str, str] | None = None
    user: str | None = None
    node: str | None = None
    since: str | None = None


FILTER = msgspec.json.Decoder(WhichTasks)


async def in_batches(
    request: Request, done: str, act: Callable[[list[int]], Coroutine[Any, Any, T]]
) -> tuple[list[T], bool]:
    """Act on the tasks that the body means, newest first.

    Return what each batch gave, and whether there are more, for which there was no time. `done`
    is what is done to them, for whoever did not say which.
    """
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    asked = decode(await read_json(request), FILTER)
    async with reading(parts, credential) as conn:
        which = await _filter(conn, asked, done)
    found: list[T] = []
    if which.statuses and not which.statuses - FINAL:
        return found, False
    which = msgspec.structs.replace(which, statuses=(which.statuses or frozenset(Status)) - FINAL)
    before, until = views.LARGEST_ID, clock.monotonic() + LONGEST
    while True:
        async with picking(parts, credential, by_status=True) as conn:
            ids = await views.pick(conn, credential.tenant_id, which, before=before, limit=BATCH)
        if ids:
            found.append(await parts.timeouts.writing(act(ids)))
            before = ids[-1]
        if len(ids) < BATCH:
            return found, False
        if clock.monotonic() >= until:
            return found, True


async def _filter(conn: Connection, asked: WhichTasks, done: str) -> TaskFilter:
    for name in ("name", "user", "node"):
        if (text := getattr(asked, name)) is not None:
            check_text(text, name)
    for name, value in (asked.labels or {}).items():
        check_text(name, "labels")
        check_text(value, f"labels.{name}")
    which = TaskFilter(
        statuses=statuses(_several(asked.status)),
        name=asked.name,
        labels={
            **labels([check_text(label, "label") for label in _several(asked.label)]),
            **(asked.labels or {}),
        },
        user=asked.user,
        node=asked.node,
        since=await since(conn, asked.since),
    )
    if which.is_empty:
        raise Invalid(
            "status",
            f"Say which tasks are to be {done}: status, name, label, user, node or since.",
        )
    return which


def _several(value: str | list[str] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value
