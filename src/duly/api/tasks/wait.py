"""The route that waits for any of many tasks with one long poll."""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from duly import clock
from duly.api.auth import Access, guard
from duly.api.requests.body import decode_body
from duly.api.requests.disconnects import while_connected
from duly.api.requests.lookups import ID_PATTERN, tenant_connection
from duly.api.requests.query import query_of
from duly.api.responses import as_json
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks.tasks import MAX_WAIT_SECONDS, POLL_INTERVAL_SECONDS, TASKS_PATHS
from duly.errors import Invalid
from duly.store.tasks import views

MAX_IDS = 10_000
IDS_PER_PLACE = 1000
"""Tasks that count as one more wait of the tenant's share."""
LINGER_SECONDS_PER_ID = 1e-5
"""Of thousands of tasks, the next ones end soon: one response tells of all, and is worth it."""


class WaitRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tasks/wait."""

    ids: list[str]
    timeout: float = MAX_WAIT_SECONDS


class Ended(msgspec.Struct):
    """The tasks that have ended, in the order of the request."""

    ended: list[str]


WAIT_DECODER = msgspec.json.Decoder(WaitRequest)


@route(
    "POST",
    [f"{path}/wait" for path in TASKS_PATHS],
    "Wait for any of many tasks",
    access=Access.READ,
    request_body=WaitRequest,
    response_body=Ended,
    errors=(413, 422),
)
async def wait_for_any(request: Request) -> Response:
    """Respond with those of the tasks that have ended, as soon as there is one.

    The list is empty after `timeout` seconds, at most 25. An id that is not, or no longer, that of
    a task of the tenant counts as ended.
    """
    components, credential = components_of(request), credential_of(request)
    query_of(request)
    body = await decode_body(request, WAIT_DECODER)
    ids = _checked(body)
    places = 1 + len(ids) // IDS_PER_PLACE
    components.waits.acquire(credential.tenant_id, places)
    try:
        ended: set[int] = set()
        await while_connected(request, _until_any_ended(request, ids, body.timeout, ended))
    finally:
        components.waits.release(credential.tenant_id, places)
    return as_json(Ended([text for text in body.ids if int(text) in ended]))


def _checked(body: WaitRequest) -> list[int]:
    if not 0 <= body.timeout <= MAX_WAIT_SECONDS:
        raise Invalid("timeout", f"give a number of seconds from 0 to {MAX_WAIT_SECONDS}.")
    if not 1 <= len(body.ids) <= MAX_IDS:
        raise Invalid("ids", f"it has {len(body.ids)} ids. Give 1 to {MAX_IDS}.")
    for index, text in enumerate(body.ids):
        if not ID_PATTERN.fullmatch(text) or int(text) > views.MAX_ID:
            raise Invalid(f"ids[{index}]", f"{text[:60]!r} is not an ID.")
    return [int(text) for text in body.ids]


async def _until_any_ended(
    request: Request, ids: Sequence[int], seconds: float, ended: set[int]
) -> None:
    """Add the tasks that have ended to `ended`; return once there is one, or after `seconds`."""
    components, credential = components_of(request), credential_of(request)
    deadline = clock.monotonic() + seconds
    weight = 1 + len(ids) // IDS_PER_PLACE
    with components.wakeups.listen_to_any(ids, weight) as wakeups:
        while True:
            async with tenant_connection(components, credential) as conn:
                ended.update(set(ids) - await views.select_live(conn, credential.tenant_id, ids))
            left = deadline - clock.monotonic()
            if ended or left <= 0 or components.wakeups.is_closed:
                return
            interval = components.wakeups.recheck_interval(POLL_INTERVAL_SECONDS * weight)
            if await wakeups.wait(min(interval, left)):
                await asyncio.sleep(len(ids) * LINGER_SECONDS_PER_ID)
            await guard(request)


HANDLERS = [wait_for_any]
