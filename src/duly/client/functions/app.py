"""The tasks of one code base: `app = duly.App("shop")`, and the decorator `@app.task`."""

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from duly.client.functions.backend import AsyncBackend, Backend
from duly.client.functions.connection import Connection
from duly.client.functions.handle import Handle
from duly.client.functions.options import TaskOptions
from duly.client.functions.task import Task
from duly.errors import ConfigError

if TYPE_CHECKING:
    from duly.client.functions.graph import GraphBuilder

P = ParamSpec("P")
R = TypeVar("R")
Hook = Callable[[], Any]
HookFunction = TypeVar("HookFunction", bound=Hook)
Middleware = Callable[["RunningCall"], Iterator[None]]
MAX_NAME_CHARS = 200


class Decorator(Protocol):
    """What `app.task(...)` returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R, R]: ...


@dataclass(frozen=True, slots=True)
class RunningCall:
    """What middleware is told of a call."""

    task: Task[Any, Any, Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class App:
    """The tasks of one code base.

    Without a URL, the server and key come from DULY_URL and DULY_KEY, or from the file that
    `duly up` wrote for this user, when they are first needed.
    """

    def __init__(
        self,
        name: str,
        url: str | None = None,
        key: str | None = None,
        *,
        ca_file: str | Path | None = None,
    ) -> None:
        self.name = name
        self.connection = Connection(url, key, ca_file)
        self._tasks: dict[str, Task[Any, Any, Any]] = {}
        self._aliases: dict[str, Task[Any, Any, Any]] = {}
        self._middleware: list[Middleware] = []
        self._startup: list[Hook] = []
        self._shutdown: list[Hook] = []

    def __repr__(self) -> str:
        return f"<app {self.name}>"

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any, Any]]:
        """The tasks by name."""
        return MappingProxyType(self._tasks)

    def find(self, name: str) -> Task[Any, Any, Any] | None:
        """Return the task with this name or alias; None if there is none."""
        return self._tasks.get(name) or self._aliases.get(name)

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Decorator: ...

    def task(  # type: ignore[misc]  # mypy does not see that the options are the same
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Make a function a task: `@app.task`, or `@app.task(tier="regular", max_attempts=5)`.

        `name` is `module:function` by default. After renaming or moving a function, its former
        name in `aliases` keeps older tasks runnable. With `retry_on`, other errors go straight to
        the dead letters.
        """

        def decorate(decorated: Callable[..., Any]) -> Task[Any, Any, Any]:
            task: Task[Any, Any, Any] = Task(
                self,
                decorated,
                name or default_name(decorated),
                aliases=aliases,
                retry_on=retry_on,
                options=options,
            )
            self._register(task)
            return task

        return decorate if function is None else decorate(function)

    def graph(self, name: str | None = None, *, key: str | None = None) -> "GraphBuilder":
        """Return a graph to be built in a `with` block, and submitted whole at its end.

        `key` is an idempotency key: submitting the same graph twice creates it once.
        """
        from duly.client.functions.graph import GraphBuilder

        return GraphBuilder(self, name, key)

    def handle(self, task_id: str) -> Handle[Any]:
        """Return the handle of a task by id; `some_task.handle` also knows its result's type."""
        from duly.client.functions.parameters import Parameters

        return Handle(self, task_id, Parameters(_any_function))

    def middleware(self, function: Callable[["RunningCall"], Iterator[None]]) -> Middleware:
        """Run a generator function around every call in a worker: it yields once, in between."""
        self._middleware.append(function)
        return function

    def startup(self, hook: HookFunction) -> HookFunction:
        """Run a function, async or not, when a process of a worker starts."""
        self._startup.append(hook)
        return hook

    def shutdown(self, hook: HookFunction) -> HookFunction:
        """Run a function, async or not, when a process of a worker stops, in reverse order."""
        self._shutdown.append(hook)
        return hook

    @property
    def client(self) -> Backend:
        """The client of this process."""
        return self.connection.client(self)

    @property
    def async_client(self) -> AsyncBackend:
        """The client of the running event loop."""
        return self.connection.async_client(self)

    def close(self) -> None:
        """Close the idle connections; later calls open new ones."""
        self.connection.close()

    async def close_async(self) -> None:
        """Close the idle connections of the running event loop."""
        await self.connection.close_async()

    def enter_middleware(
        self,
        stack: ExitStack,
        task: Task[Any, Any, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Enter the middleware for a call, in the order in which it was added."""
        for function in self._middleware:
            stack.enter_context(contextmanager(function)(RunningCall(task, args, kwargs)))

    def start_process(self) -> None:
        """Run the startup hooks in a process without an event loop."""
        for hook in self._startup:
            _run(hook)

    def stop_process(self) -> None:
        """Run the shutdown hooks in a process without an event loop."""
        for hook in reversed(self._shutdown):
            _run(hook)

    async def start_process_async(self) -> None:
        """Run the startup hooks in the event loop that will run the async functions."""
        for hook in self._startup:
            await _run_async(hook)

    async def stop_process_async(self) -> None:
        """Run the shutdown hooks in the event loop that ran the async functions."""
        for hook in reversed(self._shutdown):
            await _run_async(hook)

    def _register(self, task: Task[Any, Any, Any]) -> None:
        for name in (task.name, *task.aliases):
            if self.find(name) is not None:
                raise ConfigError(f"Two tasks of {self.name!r} are named {name!r}. Rename one.")
            if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
                raise ConfigError(
                    f"{name!r} is no name for a task. Use 1 to {MAX_NAME_CHARS} printable "
                    "characters."
                )
        self._tasks[task.name] = task
        self._aliases.update(dict.fromkeys(task.aliases, task))


def default_name(function: Callable[..., Any]) -> str:
    """Return `module:function`; the main module has the name by which others import it."""
    function = inspect.unwrap(function)
    module, name = function.__module__, function.__qualname__
    if "<lambda>" in name:
        raise ConfigError("A lambda has no name. Give it one: @app.task(name=…).")
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec else Path(getattr(main, "__file__", None) or "main").stem
    return f"{module.removesuffix('.__main__')}:{name}"


def _any_function() -> Any:
    """Have no parameters, and return anything."""


def _run(hook: Hook) -> None:
    if inspect.iscoroutinefunction(hook):
        asyncio.run(hook())
    else:
        hook()


async def _run_async(hook: Hook) -> None:
    result = hook()
    if inspect.isawaitable(result):
        await result
