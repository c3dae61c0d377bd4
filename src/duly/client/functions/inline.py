"""Runs tasks in this process as they are submitted, for tests of applications.

Arguments and results are encoded and decoded, errors are retried and fail tasks, stages are kept
across attempts: as in reality, except that nothing waits. Backoffs, `run_at` and schedules take no
time, and a task has ended when `submit` returns.
"""

import asyncio
import itertools
import json
import traceback
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from duly.client.functions.arguments import to_text
from duly.client.functions.context import Context, running
from duly.client.functions.control import Cancelled, GiveUp, Retry
from duly.client.functions.inline_output import captured_output
from duly.errors import ArgumentError, Conflict, DulyError, KeyReused, NotFound, TaskFailed

if TYPE_CHECKING:
    from duly.client.functions.app import App
    from duly.client.functions.task import Task

T = TypeVar("T")
DEFAULT_MAX_ATTEMPTS = 3
MAX_TRACEBACK_CHARS = 8192


@dataclass
class InlineTask:
    """A task that ran in this process."""

    id: str
    app: "App"
    function: str
    arguments: bytes
    fields: dict[str, Any]
    parent: str | None = None
    status: str = "waiting"
    attempt: int = 0
    result: bytes = b"null"
    reason: dict[str, Any] | None = None
    log: str = ""
    progress: tuple[float, str | None] | None = None
    stages: dict[str, bytes] = field(default_factory=dict)

    def shape(self) -> dict[str, Any]:
        """Return the task as a server would, as far as it applies."""
        return {
            **self.fields,
            "id": self.id,
            "name": self.function,
            "status": self.status,
            "attempt": self.attempt,
            "failures": self.attempt - (self.status == "done"),
            "reason": self.reason,
            "parent": self.parent,
            "stages": list(self.stages),
        }


class Inline:
    """The tasks that were submitted, in order, and the schedules."""

    def __init__(self) -> None:
        self.tasks: list[InlineTask] = []
        self.schedules: list[dict[str, Any]] = []
        self._by_id: dict[str, InlineTask] = {}
        self._by_key: dict[str, tuple[str, InlineTask]] = {}
        self._batches: dict[str, list[str]] = {}
        self._artifacts: dict[str, bytes] = {}
        self._numbers = itertools.count(1)

    def backend(self, app: "App") -> "InlineBackend":
        """Return what takes the place of an app's client."""
        return InlineBackend(self, app)

    def async_backend(self, app: "App") -> "AsyncInlineBackend":
        """Return what takes the place of an app's client for asyncio."""
        return AsyncInlineBackend(self, app)

    def find(self, task_id: str) -> InlineTask:
        """Return a task; raises NotFound."""
        try:
            return self._by_id[task_id]
        except KeyError:
            raise NotFound(f"There is no task {task_id}.") from None

    def upload(self, data: bytes) -> str:
        """Keep data, and return its hash."""
        digest = sha256(data).hexdigest()
        self._artifacts[digest] = data
        return digest

    async def submit(
        self,
        app: "App",
        fields: Mapping[str, Any],
        refs: Mapping[str, str] | None = None,
        parent: str | None = None,
        *,
        blocking: bool = False,
    ) -> InlineTask:
        """Run a task to its end, and return it; one with a key that was used is returned as is.

        With `blocking`, the coroutine never waits.
        """
        task, is_new = self._store(app, fields, parent)
        if is_new:
            upstreams = self._upstreams(fields.get("depends_on", ()), refs or {})
            if self._is_blocked(task, upstreams):
                task.status = "cancelled"
                message = "An upstream task did not end as this one needs it."
                task.reason = {"code": "upstream_failed", "message": message, "details": {}}
            else:
                results = {name: upstream.result for name, (upstream, _) in upstreams.items()}
                await self._run(task, results, blocking=blocking)
        return task

    async def submit_many(
        self,
        app: "App",
        tasks: Iterable[Mapping[str, Any]],
        key: str | None,
        *,
        blocking: bool = False,
    ) -> list[str]:
        """Run tasks in turn, and return their ids."""
        if key is not None and key in self._batches:
            return self._batches[key]
        ids = [(await self.submit(app, task, blocking=blocking)).id for task in tasks]
        if key is not None:
            self._batches[key] = ids
        return ids

    async def submit_graph(
        self, app: "App", tasks: Sequence[Mapping[str, Any]], *, blocking: bool = False
    ) -> dict[str, Any]:
        """Run the tasks of a graph, which come after their upstreams."""
        ids: dict[str, str] = {}
        for task in tasks:
            ids[task["ref"]] = (await self.submit(app, task, ids, blocking=blocking)).id
        return {"id": str(next(self._numbers)), "ids": ids}

    def _store(
        self, app: "App", fields: Mapping[str, Any], parent: str | None
    ) -> tuple[InlineTask, bool]:
        key = fields.get("idempotency_key")
        body = json.dumps(fields, sort_keys=True, default=str)
        if key is not None and key in self._by_key:
            earlier, task = self._by_key[key]
            if earlier != body:
                raise KeyReused(f"The idempotency key {key!r} was used for another task.")
            return task, False
        call = fields["call"]
        if "artifact" in fields:
            arguments = self._artifacts[fields["artifact"]]
        else:
            arguments = to_text({"args": call["args"], "kwargs": call["kwargs"]}).encode()
        number = str(next(self._numbers))
        task = InlineTask(number, app, call["function"], arguments, dict(fields), parent)
        self.tasks.append(task)
        self._by_id[task.id] = task
        if key is not None:
            self._by_key[key] = body, task
        return task, True

    def _upstreams(
        self, dependencies: Iterable[Any], refs: Mapping[str, str]
    ) -> dict[str, tuple[InlineTask, str]]:
        """Return the upstream tasks by the name that they were given, with the condition."""
        upstreams = {}
        for dependency in dependencies:
            name = dependency if isinstance(dependency, str) else dependency["task"]
            condition = "success" if isinstance(dependency, str) else dependency.get("on")
            upstreams[name] = self.find(refs.get(name, name)), condition or "success"
        return upstreams

    def _is_blocked(
        self, task: InlineTask, upstreams: Mapping[str, tuple[InlineTask, str]]
    ) -> bool:
        return any(
            condition != "always" and (upstream.status == "done") != (condition == "success")
            for upstream, condition in upstreams.values()
        )

    async def _run(self, task: InlineTask, results: Mapping[str, bytes], *, blocking: bool) -> None:
        max_attempts = task.fields.get("max_attempts") or DEFAULT_MAX_ATTEMPTS
        task.status = "running"
        while task.status == "running":
            task.attempt += 1
            with captured_output() as output:
                is_final = await self._attempt(task, results, blocking=blocking)
            task.log = output.getvalue()
            if task.reason is None:
                task.status = "done"
            elif is_final or task.attempt >= max_attempts:
                task.status = "failed"

    async def _attempt(
        self, task: InlineTask, results: Mapping[str, bytes], *, blocking: bool
    ) -> bool:
        """Run one attempt; return True if another would be useless."""
        function = task.app.find(task.function)
        if function is None:
            raise NotFound(f"The app {task.app.name!r} has no task {task.function!r}.")
        number = task.attempt
        context = Context(task.id, number, number, function.name, None, InlineChannel(self, task))
        task.reason = None
        try:
            args, kwargs = function.decode(task.arguments, results)
            with running(context):
                value = await _call(function, args, kwargs, blocking=blocking)
            task.result = function.encode_result(value)
        except ArgumentError as error:
            task.reason = _reason("exception", error)
            return True
        except Retry as error:
            task.reason = _reason("retry_requested", error)
        except GiveUp as error:
            task.reason = _reason("gave_up", error)
        except (Exception, Cancelled) as error:
            task.reason = _reason("exception", error)
            return not function.retries(error)
        return task.reason is not None and task.reason["code"] == "gave_up"


class InlineBackend:
    """The blocking methods."""

    def __init__(self, inline: Inline, app: "App") -> None:
        self._inline = inline
        self._app = app

    def submit(self, **task: Any) -> Any:
        """Run a task to its end."""
        return run_now(self._inline.submit(self._app, task, blocking=True)).shape()

    def submit_many(self, tasks: Iterable[Any], *, idempotency_key: str | None = None) -> list[str]:
        """Run tasks to their ends."""
        return run_now(self._inline.submit_many(self._app, tasks, idempotency_key, blocking=True))

    def submit_graph(
        self, tasks: Any, *, name: str | None = None, idempotency_key: str | None = None
    ) -> Any:
        """Run a graph to its end."""
        return run_now(self._inline.submit_graph(self._app, tasks, blocking=True))

    def upload_data(self, data: bytes) -> str:
        """Keep data, and return its hash."""
        return self._inline.upload(data)

    def put_schedule(self, name: str, **fields: Any) -> Any:
        """Keep a schedule; it never fires."""
        schedules = self._inline.schedules
        schedules[:] = [schedule for schedule in schedules if schedule["name"] != name]
        schedules.append({"id": f"schedule-{name}", "name": name, **fields})
        return schedules[-1]

    def wait_for_any(self, tasks: Sequence[str], timeout: float) -> list[str]:
        """Return the tasks: all have ended."""
        return [self._inline.find(task).id for task in tasks]

    def get_task(self, task: str) -> Any:
        """Return a task."""
        return self._inline.find(task).shape()

    def get_result(self, task: str) -> Any:
        """Return the result of a task; raises TaskFailed."""
        found = self._inline.find(task)
        if found.status != "done":
            message = (found.reason or {}).get("message", "")
            raise TaskFailed(f"Task {task} has {found.status} and has no result: {message}")
        return json.loads(found.result)

    def get_dead_letter(self, task: str) -> Any:
        """Return a failed task."""
        found = self._inline.find(task)
        if found.status != "failed":
            raise NotFound(f"Task {task} is no dead letter.")
        return {**found.shape(), "last_attempt": {"reason": found.reason}, "log_tail": found.log}

    def cancel_task(self, task: str) -> Any:
        """Refuse: the task has ended."""
        status = self._inline.find(task).status
        raise Conflict(f"Task {task} is {status} and cannot be cancelled.", status=status)

    def read_logs(self, task: str, attempt: int | None = None) -> bytes:
        """Return what the last attempt wrote."""
        return self._inline.find(task).log.encode()


class AsyncInlineBackend:
    """The same methods with `await`."""

    def __init__(self, inline: Inline, app: "App") -> None:
        self._inline = inline
        self._app = app
        self._blocking = InlineBackend(inline, app)

    async def submit(self, **task: Any) -> Any:
        """Run a task to its end."""
        return (await self._inline.submit(self._app, task)).shape()

    async def submit_many(
        self, tasks: Iterable[Any], *, idempotency_key: str | None = None
    ) -> list[str]:
        """Run tasks to their ends."""
        return await self._inline.submit_many(self._app, tasks, idempotency_key)

    async def submit_graph(
        self, tasks: Any, *, name: str | None = None, idempotency_key: str | None = None
    ) -> Any:
        """Run a graph to its end."""
        return await self._inline.submit_graph(self._app, tasks)

    async def upload_data(self, data: bytes) -> str:
        """Keep data, and return its hash."""
        return self._blocking.upload_data(data)

    async def wait_for_any(self, tasks: Sequence[str], timeout: float) -> list[str]:
        """Return the tasks: all have ended."""
        return self._blocking.wait_for_any(tasks, timeout)

    async def get_task(self, task: str) -> Any:
        """Return a task."""
        return self._blocking.get_task(task)

    async def get_result(self, task: str) -> Any:
        """Return the result of a task; raises TaskFailed."""
        return self._blocking.get_result(task)

    async def get_dead_letter(self, task: str) -> Any:
        """Return a failed task."""
        return self._blocking.get_dead_letter(task)

    async def cancel_task(self, task: str) -> Any:
        """Refuse: the task has ended."""
        return self._blocking.cancel_task(task)

    async def read_logs(self, task: str, attempt: int | None = None) -> bytes:
        """Return what the last attempt wrote."""
        return self._blocking.read_logs(task, attempt)


class InlineChannel:
    """The way from a function to the tasks in this process."""

    is_cancelled = False

    def __init__(self, inline: Inline, task: InlineTask) -> None:
        self._inline = inline
        self._task = task

    def progress(self, fraction: float, text: str | None) -> None:
        """Keep the last report."""
        self._task.progress = fraction, text

    def stages(self) -> dict[str, bytes]:
        """Return what is recorded."""
        return dict(self._task.stages)

    def save_stage(self, name: str, result: bytes) -> bytes:
        """Record a stage unless it is."""
        return self._task.stages.setdefault(name, result)

    def submit(self, task: dict[str, Any]) -> dict[str, Any]:
        """Run a child to its end."""
        child = self._inline.submit(self._task.app, task, parent=self._task.id, blocking=True)
        return run_now(child).shape()

    def throttled(self, key: str, retry_after: float) -> None:
        """Do nothing: nothing is limited here."""


async def _call(
    function: "Task[Any, Any, Any]", args: list[Any], kwargs: dict[str, Any], *, blocking: bool
) -> Any:
    """Call a function as a worker does: one without `async` in a thread without an event loop."""
    if function.is_async:
        coroutine = function.call_async(args, kwargs)
        return _run_in_loop(coroutine) if blocking else await coroutine
    if blocking:
        return function.call(args, kwargs)
    return await asyncio.to_thread(function.call, args, kwargs)


def _run_in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own; in another thread if this one has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    current = copy_context()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(current.run, asyncio.run, coroutine).result()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the coroutine waits")


def _reason(code: str, error: BaseException) -> dict[str, Any]:
    kind = type(error)
    name = error.message if isinstance(error, DulyError) else f"{kind.__name__}: {error}"
    text = "".join(traceback.format_exception(error))[-MAX_TRACEBACK_CHARS:]
    details = {"type": f"{kind.__module__}.{kind.__qualname__}", "traceback": text}
    return {"code": code, "message": name, "details": details}
