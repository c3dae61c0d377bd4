"""Logs: what a task has written, or is writing just now.

Following a log reads the same places as reading it: chunks from the object store
while the attempt runs, and the tail of its report once it has ended. An attempt that was
lost with its node has no report, and its log ends with the last chunk that arrived.
"""

from collections.abc import AsyncIterator

from starlette.requests import Request

from duly.api.auth import Access, guard
from duly.api.download import Download
from duly.api.query import query_of
from duly.api.reading import id_of, not_found, reading
from duly.api.routes import Parameter, credential_of, parts_of, route
from duly.api.tasks import ONE
from duly.model.tenant import Credential
from duly.server.parts import Parts
from duly.store import views
from duly.store.views import LogEnd

LOOK_AGAIN = 0.5
"""Seconds after which whoever follows looks by itself, in case that nobody rang."""
MAX_ATTEMPT = 2**31 - 1
TEXT = "text/plain"


@route(
    "GET",
    [f"{path}/logs" for path in ONE],
    "Read what a task has written",
    access=Access.READ,
    gives=str,
    media_type=TEXT,
    query=(
        Parameter("attempt", "Which attempt, the latest unless told.", int, minimum=1),
        Parameter("follow", "Go on until the task, or the named attempt, is over.", bool),
    ),
    errors=(404, 422),
)
async def read_logs(request: Request) -> Download:
    """Return stdout and stderr as written."""
    parts, credential = parts_of(request), credential_of(request)
    task_id = id_of(request, "task")
    query = query_of(request)
    attempt = query.integer("attempt", 1, MAX_ATTEMPT)
    follow = query.flag("follow")
    end = await _end(parts, credential, task_id, attempt)
    if end is None:
        raise not_found("task", task_id)
    if attempt is not None and attempt > end.latest and not (follow and end.is_live):
        raise not_found(f"attempt {attempt} of task", task_id)
    if follow:
        return Download(request, _follow(request, task_id, attempt), TEXT, room=parts.waits)
    return Download(request, _read(parts, task_id, end, 0), TEXT)


async def _end(
    parts: Parts, credential: Credential, task_id: int, attempt: int | None
) -> LogEnd | None:
    async with reading(parts, credential) as conn:
        return await views.read_log_end(conn, credential.tenant_id, task_id, attempt)


async def _read(parts: Parts, task_id: int, end: LogEnd, start: int) -> AsyncIterator[bytes]:
    """Yield what there is of one attempt's log from `start` on."""
    if end.attempt == 0:
        return
    logbook, attempt = parts.logbook, end.attempt
    if end.is_running:
        text = logbook.read(task_id, attempt, start)
    elif end.is_lost:
        text = logbook.read_lost(task_id, attempt, start)
    else:
        text = logbook.read_ended(task_id, attempt, size=end.size, tail=end.tail, start=start)
    async for data in text:
        yield data


async def _follow(request: Request, task_id: int, attempt: int | None) -> AsyncIterator[bytes]:
    """Yield a log as it grows: of one attempt, or of the latest and all that come after it."""
    parts, credential = parts_of(request), credential_of(request)
    current, position = attempt, 0
    with parts.bell.listen(task_id) as bell:
        while True:
            await guard(request)
            end = await _end(parts, credential, task_id, current)
            if end is None:
                return
            if end.attempt > 0 and end.attempt <= end.latest:
                current = end.attempt
                async for data in _read(parts, task_id, end, position):
                    position += len(data)
                    yield data
            if attempt is None and current is not None and current < end.latest:
                current, position = current + 1, 0
                continue
            is_over = attempt is not None and attempt <= end.latest and not end.is_running
            if is_over or not end.is_live:
                return
            await bell.wait(parts.bell.patience(LOOK_AGAIN))


HANDLERS = [read_logs]
