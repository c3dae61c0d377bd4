"""Performs a call: decode the arguments, run the function, encode the result, describe the end."""

import resource
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duly
from duly.agent.pool.messages import Ended
from duly.agent.pool.process.channel import CallChannel
from duly.agent.pool.process.connection import Connection
from duly.agent.pool.process.running_call import RunningCall
from duly.client.functions.context import Context, running
from duly.client.functions.control import Cancelled, GiveUp, Retry
from duly.clock import monotonic

MAX_MESSAGE_CHARS = 500
MAX_TRACEBACK_CHARS = 8192
OWN_FOLDER = str(Path(duly.__file__).parent)


class End:
    """How a call has ended, apart from its output."""

    __slots__ = ("code", "details", "gives_up", "message", "result", "retry_after")

    def __init__(self) -> None:
        self.result: bytes | None = None
        self.code = self.message = ""
        self.details: dict[str, Any] = {}
        self.retry_after: float | None = None
        self.gives_up = False

    def fail(self, code: str, message: str, *, gives_up: bool = False) -> None:
        """Record a failure."""
        self.code, self.message, self.gives_up = code, message[:MAX_MESSAGE_CHARS], gives_up


class Performance:
    """Everything about a call that does not depend on how its function is run."""

    def __init__(self, app: Any, call: RunningCall, connection: Connection, at: float) -> None:
        run = call.run
        self.call = call
        self.end = End()
        self.task = app.find(run.function)
        self.began_at = at
        self._cpu = _cpu_seconds()
        self._context = Context(
            task_id=str(run.task),
            attempt=run.attempt,
            # Of this task only. The servers' token counts the attempts of all tenants.
            fencing_token=run.attempt,
            name=run.name,
            deadline=at + run.cap,
            channel=CallChannel(connection, call),
        )

    def run(self, interrupt: Callable[[], None], withdraw: Callable[[], None]) -> None:
        """Run a function to its end, in this thread."""
        try:
            args, kwargs = self._decode()
            with running(self._context):
                try:
                    self.call.enter(interrupt, withdraw)
                    value = self.task.call(args, kwargs)
                finally:
                    self.call.leave()
            self._encode(value)
        except BaseException as error:
            self._describe(error)

    async def run_async(self, interrupt: Callable[[], None]) -> None:
        """Run an async function to its end; `interrupt` cancels this coroutine."""
        try:
            args, kwargs = self._decode()
            with running(self._context):
                try:
                    self.call.enter(interrupt, lambda: None)
                    value = await self.task.call_async(args, kwargs)
                finally:
                    self.call.leave()
            self._encode(value)
        except BaseException as error:
            import asyncio

            is_cancelled = self.call.is_interrupted and isinstance(error, asyncio.CancelledError)
            self._describe(Cancelled() if is_cancelled else error)

    def _decode(self) -> tuple[list[Any], dict[str, Any]]:
        run = self.call.run
        try:
            args, kwargs = self.task.decode(run.arguments, run.inputs)
        except Exception as error:
            raise _Refused("arguments_invalid", str(error)) from error
        return args, kwargs

    def _encode(self, value: Any) -> None:
        limit = self.call.run.result_limit
        try:
            result: bytes = self.task.encode_result(value)
        except Exception as error:
            raise _Refused("result_invalid", str(error)) from error
        if len(result) > limit:
            message = f"Its result has {len(result):,} bytes of JSON; at most {limit:,} are kept."
            raise _Refused("result_invalid", message)
        self.end.result = result

    def _describe(self, error: BaseException) -> None:
        end = self.end
        match error:
            case _Refused():
                end.fail(error.code, str(error), gives_up=error.code == "arguments_invalid")
            case Retry():
                end.fail("retry_requested", str(error) or "It asked to be run again.")
                end.retry_after = error.after
            case GiveUp():
                end.fail("gave_up", str(error) or "It gave up.", gives_up=True)
            case Cancelled() if self.call.is_interrupted:
                end.fail("interrupted", "It was interrupted.")
            case _:
                kind = type(error)
                text = f"{kind.__name__}: {error}" if str(error) else kind.__name__
                end.fail("exception", text, gives_up=not self.task.retries(error))
                end.details = {
                    "type": f"{kind.__module__}.{kind.__qualname__}",
                    "traceback": _traceback(error)[-MAX_TRACEBACK_CHARS:],
                }

    def ended(self, log: "tuple[bytes, int, str]") -> Ended:
        """Return the message that tells the end, with the output."""
        end = self.end
        text, size, spooled_as = log
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Ended(
            number=self.call.run.number,
            began_at=self.began_at,
            ended_at=monotonic(),
            cpu_seconds=usage.ru_utime + usage.ru_stime - self._cpu,
            peak_bytes=usage.ru_maxrss * 1024,
            is_interrupted=self.call.is_interrupted,
            result=end.result,
            code=end.code,
            message=end.message,
            details=end.details,
            retry_after=end.retry_after,
            gives_up=end.gives_up,
            log=text,
            log_size=size,
            spooled_as=spooled_as,
        )


class _Refused(Exception):
    """Arguments or a result that cannot be converted."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _traceback(error: BaseException) -> str:
    """Return the traceback from the application's first frame on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OWN_FOLDER):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
