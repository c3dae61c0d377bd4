"""A function of an application that can run as a task.

Calling it is an ordinary call, here and now. `submit` sends the call to Duly, typed like the call
itself. The second half is what workers use: names, decoding, and the call with its middleware.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

from duly.client.functions import submission
from duly.client.functions.arguments import decode_arguments, encode_result
from duly.client.functions.control import GiveUp, Retry
from duly.client.functions.handle import Handle
from duly.client.functions.options import TaskOptions, check_options
from duly.client.functions.parameters import Parameters
from duly.client.shapes.schedule_shapes import Schedule

if TYPE_CHECKING:
    from duly.client.functions.app import App
    from duly.client.functions.graph import Node
    from duly.client.functions.submission import CallArguments, Recurrence

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", covariant=True)
"""What a call returns: the result, or the coroutine of an async function."""


class Task(Generic[P, R, C]):
    """A function with the decorator `@app.task`."""

    def __init__(
        self,
        app: "App",
        function: Callable[P, C],
        name: str,
        *,
        aliases: Sequence[str] = (),
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | None = None,
        options: Mapping[str, Any],
    ) -> None:
        check_options(options)
        self.app = app
        self.function = function
        self.name = name
        """The name under which tasks are stored and workers find the function."""
        self.aliases = tuple(aliases)
        """Earlier names, under which older tasks are still found."""
        self.retry_on = retry_on
        self.own_options = dict(options)
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        self.parameters = Parameters(function)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def options(self, **options: Unpack[TaskOptions]) -> "Task[P, R, C]":
        """Return the task with other options, for one or more submissions."""
        return Task(
            self.app,
            self.function,
            self.name,
            aliases=self.aliases,
            retry_on=self.retry_on,
            options={**self.own_options, **options},
        )

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit a call, and return its handle once the task is stored."""
        return submission.submit(self, args, kwargs)

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Do the same from a coroutine."""
        return await submission.submit_async(self, args, kwargs)

    def submit_many(self, calls: "Iterable[CallArguments]") -> list[Handle[R]]:
        """Submit many calls in one request, all or none.

        A call is a tuple of positional arguments, or a mapping of keyword arguments.
        """
        return submission.submit_many(self, calls)

    async def submit_many_async(self, calls: "Iterable[CallArguments]") -> list[Handle[R]]:
        """Do the same from a coroutine."""
        return await submission.submit_many_async(self, calls)

    def map(self, *iterables: Iterable[Any]) -> list[Handle[R]]:
        """Submit a call for each item, in one request, like the builtin `map`."""
        return submission.submit_many(self, zip(*iterables, strict=False))

    async def map_async(self, *iterables: Iterable[Any]) -> list[Handle[R]]:
        """Do the same from a coroutine."""
        return await submission.submit_many_async(self, zip(*iterables, strict=False))

    def schedule(
        self,
        name: str,
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **recurrence: "Unpack[Recurrence]",
    ) -> Schedule:
        """Create a schedule: `encode.schedule("nightly", daily="06:30", args=("a.mp4", 720))`.

        Calling it again with the same name and the same contents changes nothing; with other
        contents it updates the schedule. So it can be called whenever the application starts.
        """
        return submission.schedule(self, name, args, kwargs or {}, recurrence)

    def node(self, *args: P.args, **kwargs: P.kwargs) -> "Node[R]":
        """Add a call to the graph of the surrounding `with app.graph(...)`."""
        from duly.client.functions.graph import add_node

        return add_node(self, args, kwargs)

    def handle(self, task_id: str) -> Handle[R]:
        """Return the handle of a task that was submitted earlier, perhaps elsewhere."""
        return Handle(self.app, task_id, self.parameters)

    def decode(
        self, arguments: bytes, results: Mapping[str, bytes]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a stored call; raises ArgumentError.

        `results` has the JSON of the results of upstream tasks, by ref or id.
        """
        return decode_arguments(self.parameters, arguments, results)

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the function, which is not async, within the middleware."""
        with ExitStack() as stack:
            self.app.enter_middleware(stack, self, args, kwargs)
            return self.function(*args, **kwargs)

    async def call_async(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the async function within the middleware."""
        with ExitStack() as stack:
            self.app.enter_middleware(stack, self, args, kwargs)
            return await cast(Coroutine[Any, Any, R], self.function(*args, **kwargs))

    def encode_result(self, value: Any) -> bytes:
        """Return the JSON of what the function returned; raises ResultError."""
        return encode_result(self.parameters.result, value)

    def retries(self, error: BaseException) -> bool:
        """Return True if an error is worth another attempt."""
        if isinstance(error, Retry):
            return True
        if isinstance(error, GiveUp):
            return False
        return self.retry_on is None or isinstance(error, self.retry_on)
