"""Completes the error of a task that has failed: reason, traceback and the end of the log."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from duly.errors import DulyError, TaskFailed

if TYPE_CHECKING:
    from duly.client.functions.backend import AsyncBackend, Backend


def describe(error: TaskFailed, client: "Backend", task_id: str) -> TaskFailed:
    """Return the error with what the server knows; a log that cannot be read is left out."""
    try:
        return _failure(error, client.get_dead_letter(task_id))
    except DulyError:  # it was cancelled or dropped: then there is no dead letter
        return _failure(error, client.get_task(task_id))


async def describe_async(error: TaskFailed, client: "AsyncBackend", task_id: str) -> TaskFailed:
    """Do the same in a coroutine."""
    try:
        return _failure(error, await client.get_dead_letter(task_id))
    except DulyError:
        return _failure(error, await client.get_task(task_id))


def _failure(error: TaskFailed, task: Mapping[str, Any]) -> TaskFailed:
    last = task.get("last_attempt") or {}
    reason, last_reason = task.get("reason"), last.get("reason")
    traceback = _traceback(reason) or _traceback(last_reason)
    return TaskFailed(
        error.message,
        task=task["id"],
        reason=last_reason or reason,
        traceback=traceback,
        log=task.get("log_tail") or "",
        status=task["status"],
    )


def _traceback(reason: Mapping[str, Any] | None) -> str | None:
    found = ((reason or {}).get("details") or {}).get("traceback")
    return found if isinstance(found, str) else None
