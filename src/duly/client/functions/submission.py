"""Sends calls of functions to Duly: one, many in one request, or as a schedule."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from duly.client.functions.arguments import EncodedArguments, encode_arguments
from duly.client.functions.handle import Handle
from duly.client.functions.options import task_fields
from duly.client.shapes.schedule_shapes import RecurrenceFields, Schedule
from duly.errors import Invalid

if TYPE_CHECKING:
    from duly.client.functions.task import Task

R = TypeVar("R")
CallArguments = Sequence[Any] | Mapping[str, Any]
MAX_INLINE_BYTES = 1024 * 1024
"""Larger arguments are uploaded and named by their hash: requests are bounded at 2 MiB."""


class Recurrence(RecurrenceFields, total=False):
    """When a schedule fires, and what becomes of missed and overlapping occurrences."""

    misfire: str | None
    overlap: str | None


def submit(task: "Task[Any, R, Any]", args: Sequence[Any], kwargs: Mapping[str, Any]) -> Handle[R]:
    """Submit one call."""
    fields, upload = request(task, args, kwargs)
    client = task.app.client
    if upload is not None:
        fields["artifact"] = client.upload_data(upload)
    return Handle(task.app, client.submit(**fields)["id"], task.parameters)


async def submit_async(
    task: "Task[Any, R, Any]", args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Handle[R]:
    """Submit one call."""
    fields, upload = request(task, args, kwargs)
    client = task.app.async_client
    if upload is not None:
        fields["artifact"] = await client.upload_data(upload)
    return Handle(task.app, (await client.submit(**fields))["id"], task.parameters)


def submit_many(task: "Task[Any, R, Any]", calls: Iterable[CallArguments]) -> list[Handle[R]]:
    """Submit many calls in one request."""
    requests, key = _requests(task, calls)
    client = task.app.client
    for fields, upload in requests:
        if upload is not None:
            fields["artifact"] = client.upload_data(upload)
    if not requests:
        return []
    ids = client.submit_many([fields for fields, _ in requests], idempotency_key=key)
    return [Handle(task.app, task_id, task.parameters) for task_id in ids]


async def submit_many_async(
    task: "Task[Any, R, Any]", calls: Iterable[CallArguments]
) -> list[Handle[R]]:
    """Submit many calls in one request."""
    requests, key = _requests(task, calls)
    client = task.app.async_client
    for fields, upload in requests:
        if upload is not None:
            fields["artifact"] = await client.upload_data(upload)
    if not requests:
        return []
    ids = await client.submit_many([fields for fields, _ in requests], idempotency_key=key)
    return [Handle(task.app, task_id, task.parameters) for task_id in ids]


def schedule(
    task: "Task[Any, Any, Any]",
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    recurrence: Mapping[str, Any],
) -> Schedule:
    """Create the schedule with this name, or update it."""
    fields, upload = request(task, args, kwargs)
    client = task.app.client
    if upload is not None:
        fields["artifact"] = client.upload_data(upload)
    return client.put_schedule(name=name, task=fields, **recurrence)


def request(
    task: "Task[Any, Any, Any]", args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], bytes | None]:
    """Return the fields of a request, and the arguments if they must be uploaded."""
    encoded = encode_arguments(task.parameters, args, kwargs)
    arguments: Mapping[str, Any] = {}
    if task.own_options.get("unique") is not None:
        bound = task.parameters.bind(args, kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
    fields = task_fields(task.own_options, arguments, encoded.upstreams)
    call = _call(task.name, encoded)
    text = encoded.text()
    if len(text) <= MAX_INLINE_BYTES:
        return {**fields, "call": {**call, "args": encoded.args, "kwargs": encoded.kwargs}}, None
    return {**fields, "call": call}, text.encode()


def _call(function: str, encoded: EncodedArguments) -> dict[str, Any]:
    call: dict[str, Any] = {"function": function}
    return {**call, "secret": list(encoded.secret)} if encoded.secret else call


def _requests(
    task: "Task[Any, Any, Any]", calls: Iterable[CallArguments]
) -> tuple[list[tuple[dict[str, Any], bytes | None]], str | None]:
    """Return the requests of many calls, and the idempotency key of the whole batch."""
    requests = []
    for index, call in enumerate(calls):
        if isinstance(call, (str, bytes)) or not isinstance(call, (Sequence, Mapping)):
            raise Invalid(
                f"[{index}]",
                "a call is a tuple of positional or a mapping of keyword arguments. For a single "
                "argument, use map.",
            )
        args, kwargs = ((), call) if isinstance(call, Mapping) else (call, {})
        try:
            requests.append(request(task, args, kwargs))
        except Invalid as error:
            raise error.within(f"[{index}]") from None
    key = task.own_options.get("idempotency_key")
    for fields, _ in requests:
        fields.pop("idempotency_key", None)
    return requests, key
