"""The route that reads and follows the logs of a task.

Both read the same sources: chunks in the object store while the attempt runs, and the tail in its
report once it has ended. An attempt that was lost with its node has no report, so its log ends
with the last chunk that arrived.
"""

from collections.abc import AsyncIterator

from starlette.requests import Request

from duly.api.auth import Access, guard
from duly.api.limits.downloads import Download
from duly.api.requests.disconnects import break_off
from duly.api.requests.lookups import id_of, not_found, tenant_connection
from duly.api.requests.query import query_of
from duly.api.routes import Parameter, components_of, credential_of, route
from duly.api.tasks.tasks import TASK_PATHS
from duly.errors import NotFound
from duly.model.tenant import Credential
from duly.server.components import Components
from duly.store.tasks import views
from duly.store.tasks.views import LogEnd

POLL_INTERVAL_SECONDS = 0.5
"""A follower polls this often in case that it misses a wake-up."""
MAX_ATTEMPT = 2**31 - 1
TEXT_MEDIA_TYPE = "text/plain"


@route(
    "GET",
    [f"{path}/logs" for path in TASK_PATHS],
    "Read the log of a task",
    access=Access.READ,
    response_body=str,
    media_type=TEXT_MEDIA_TYPE,
    query=(
        Parameter("attempt", "The number of the attempt; the latest by default.", int, minimum=1),
        Parameter("follow", "Stream until the task, or the given attempt, has ended.", bool),
    ),
    errors=(404, 422),
)
async def read_logs(request: Request) -> Download:
    """Read the stdout and stderr of a task, as written."""
    components, credential = components_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query = query_of(request)
    attempt = query.integer("attempt", 1, MAX_ATTEMPT)
    follow = query.flag("follow")
    end = await _read_log_end(components, credential, task_id, attempt)
    if end is None:
        raise not_found("task", task_id)
    if attempt is not None and attempt > end.latest and not (follow and end.is_live):
        raise NotFound(f"Task {task_id} has no attempt {attempt}.", kind="attempt")
    if end.needs_store:
        # Before the response begins: after that, a client would only see a broken connection.
        await components.log_store.check_readable(task_id, end.attempt)
    if follow:
        return Download(
            request,
            _follow_log(request, task_id, attempt),
            TEXT_MEDIA_TYPE,
            limiter=components.waits,
        )
    return Download(request, _read_attempt_log(components, task_id, end, 0), TEXT_MEDIA_TYPE)


async def _read_log_end(
    components: Components, credential: Credential, task_id: int, attempt: int | None
) -> LogEnd | None:
    async with tenant_connection(components, credential) as conn:
        return await views.read_log_end(conn, credential.tenant_id, task_id, attempt)


async def _read_attempt_log(
    components: Components, task_id: int, end: LogEnd, start: int
) -> AsyncIterator[bytes]:
    """Yield one attempt's log as far as it is stored, from the offset `start` on."""
    if end.attempt == 0:
        return
    log_store, attempt = components.log_store, end.attempt
    if end.is_running:
        text = log_store.read(task_id, attempt, start)
    elif end.is_lost:
        text = log_store.read_lost(task_id, attempt, start)
    else:
        text = log_store.read_ended(task_id, attempt, size=end.size, tail=end.tail, start=start)
    async for data in text:
        yield data


async def _follow_log(request: Request, task_id: int, attempt: int | None) -> AsyncIterator[bytes]:
    """Yield a log as it grows: of one attempt, or of the latest attempt and those after it."""
    components, credential = components_of(request), credential_of(request)
    current, position = attempt, 0
    with components.wakeups.listen(task_id) as wakeups:
        while True:
            await guard(request)
            end = await _read_log_end(components, credential, task_id, current)
            if end is None:
                return
            if end.attempt > 0 and end.attempt <= end.latest:
                current = end.attempt
                async for data in _read_attempt_log(components, task_id, end, position):
                    position += len(data)
                    yield data
            if attempt is None and current is not None and current < end.latest:
                current, position = current + 1, 0
                continue
            is_over = attempt is not None and attempt <= end.latest and not end.is_running
            if is_over or not end.is_live:
                return
            if components.wakeups.is_closed:
                # The client goes on where it was, at another server or when this one is back.
                break_off(request)
                return
            await wakeups.wait(components.wakeups.recheck_interval(POLL_INTERVAL_SECONDS))


HANDLERS = [read_logs]
