"""What somebody outside may say of a task: that it is done or has failed, and why."""

from enum import StrEnum

import msgspec

from duly.errors import Invalid
from duly.model.requests.texts import check_text
from duly.model.task import Reason, Status

MARKED = "marked"
"""The code of the reason of every marked task, and of the attempt that a mark has stopped."""
MAX_REASON_CHARS = 2_000
NO_RESULT = msgspec.Raw(b"null")


class MarkStatus(StrEnum):
    """The ends that a task can be given; cancelling has a call of its own."""

    DONE = "done"
    FAILED = "failed"


class MarkRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tasks/{id}/mark."""

    status: MarkStatus
    reason: str
    result: msgspec.Raw = msgspec.field(default_factory=lambda: NO_RESULT)


class Mark(msgspec.Struct, frozen=True):
    """A checked request; `result` is JSON, or None."""

    status: Status
    text: str
    result: str | None = None

    def reason(self, actor: str) -> Reason:
        """Return why the task has ended, for the task and for the attempt that was stopped."""
        return Reason(
            MARKED,
            f"Marked as {self.status} by {actor}: {self.text}",
            {"by": actor, "reason": self.text},
        )


def complete(request: MarkRequest) -> Mark:
    """Check a request; raises Invalid."""
    text = request.reason.strip()
    if not text:
        raise Invalid(
            "reason", "it is empty. Say why the task is marked; the reason is kept with it."
        )
    if len(text) > MAX_REASON_CHARS:
        raise Invalid(
            "reason", f"it has {len(text)} characters; at most {MAX_REASON_CHARS} are allowed."
        )
    check_text(text, "reason")
    return Mark(Status(request.status.value), text, _result(request))


def check_result_size(mark: Mark, limit: int) -> None:
    """Raise Invalid if the result is larger than one that the task itself may leave."""
    size = 0 if mark.result is None else len(mark.result.encode())
    if size > limit:
        raise Invalid("result", f"it has {size} bytes; this task may have at most {limit}.")


def _result(request: MarkRequest) -> str | None:
    try:
        value = msgspec.json.decode(request.result)
        text = bytes(request.result).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("result", f"it is not JSON: {error}.") from None
    if value is None:
        return None
    if request.status is MarkStatus.FAILED:
        raise Invalid(
            "result", "a failed task has no result. Leave it out, or mark the task as done."
        )
    return text
