"""Bodies with many tasks: read a few at a time, so that others get their turn in between.

First the body is only cut: what each task says stays as it was written. A body of 100,000
tasks that is read in one go keeps everybody else waiting for a quarter of a second.
"""

import asyncio
import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from duly.api.body import decode, translate
from duly.errors import Invalid, Malformed
from duly.model.graph_request import GraphRequest
from duly.model.request import Completer, TaskRequest
from duly.model.task import TaskSpec
from duly.model.tenant import Credential

AT_ONCE = 100
"""Tasks that are read, or checked, before others get their turn on this server."""
TASK = msgspec.json.Decoder(TaskRequest)
PLACE = re.compile(r" - at (`key` in )?`\$(.*)`$", re.DOTALL)


class Batch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tasks/batch."""

    tasks: list[TaskRequest]


class CutBatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A batch of which the tasks are still to be read."""

    tasks: list[msgspec.Raw]


class CutGraph(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A graph of which the tasks are still to be read."""

    name: str | None = None
    defaults: TaskRequest | None = None
    tasks: list[msgspec.Raw] | dict[str, msgspec.Raw]


BATCH = msgspec.json.Decoder(Batch)
GRAPH = msgspec.json.Decoder(GraphRequest)
CUT_BATCH = msgspec.json.Decoder(CutBatch)
CUT_GRAPH = msgspec.json.Decoder(CutGraph)
T = TypeVar("T", Batch, GraphRequest)


async def decode_batch(body: bytes) -> Batch:
    """Read the body of a batch; raises Malformed or Invalid."""
    cut = decode(body, CUT_BATCH)
    await asyncio.sleep(0)
    return Batch(tasks=await _read(cut.tasks, body, BATCH, "[{}]"))


async def decode_graph(body: bytes) -> GraphRequest:
    """Read the body of a graph; raises Malformed or Invalid."""
    cut = decode(body, CUT_GRAPH)
    await asyncio.sleep(0)
    if isinstance(cut.tasks, list):
        tasks = await _read(cut.tasks, body, GRAPH, "[{}]")
        return GraphRequest(name=cut.name, defaults=cut.defaults, tasks=tasks)
    read = await _read(cut.tasks.values(), body, GRAPH, "[...]")
    by_ref = dict(zip(cut.tasks, read, strict=True))
    return GraphRequest(name=cut.name, defaults=cut.defaults, tasks=by_ref)


async def complete_all(tasks: list[TaskRequest], credential: Credential) -> list[TaskSpec]:
    """Check many requests; raises Invalid for the first bad field, with its place.

    The list is emptied meanwhile: to give all of it back at once would take as long.
    """
    specs = []
    completer = Completer(credential.plan)
    tasks.reverse()
    for index in range(len(tasks)):
        if index % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        try:
            specs.append(completer.complete(tasks.pop()))
        except Invalid as error:
            where = f"tasks[{index}]"
            raise Invalid(f"{where}.{error.field}", f"{where}: {error.message}") from None
    return specs


async def _read(
    cut: Iterable[msgspec.Raw], body: bytes, whole: msgspec.json.Decoder[T], place: str
) -> list[TaskRequest]:
    """Read tasks; what is wrong is said as if `body` had been read in one go by `whole`.

    `place` is how that one names the place of a task, by its index.
    """
    found = []
    for index, raw in enumerate(cut):
        if index % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        try:
            found.append(TASK.decode(raw))
        except msgspec.ValidationError as error:
            told = _in_place(str(error), place.format(index))
            raise translate(told, whole.type) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Something that cutting does not look at, such as half of a surrogate pair.
            decode(body, whole)
            raise Malformed("The body is not valid JSON.") from None
    return found


def _in_place(message: str, place: str) -> str:
    """Return what is wrong with a task as a decoder says it of a whole body."""
    found = PLACE.search(message)
    if found is None:
        return f"{message} - at `$.tasks{place}`"
    return f"{message[: found.start()]} - at {found[1] or ''}`$.tasks{place}{found[2]}`"
