"""Bodies with many tasks: counted first, then read one by one.

To count the tasks the body is skimmed, and nothing of it is kept. Then it is only cut: what
each task says stays as it was written until it is its turn, and what is made of it is checked
before the next one is read, so that the first bad task ends it all.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from duly.api.body import check_json, decode, translate
from duly.api.value_limit import ONE_THING
from duly.config import RequestSettings
from duly.errors import Invalid, Malformed, TooLarge
from duly.model.graph import check_number
from duly.model.graph_request import GraphRequest, check_any, common_fields, graph_name, whole_task
from duly.model.request import Completer, TaskRequest
from duly.model.task import TaskSpec
from duly.model.tenant import Credential
from duly.server.offload import offload

MIN_VALUES = 300_000
BYTES_PER_VALUE = 12
"""Arguments, variables and labels of all tasks together may be `MIN_VALUES`, or one for each so
many bytes of the body: a short string takes 70 bytes once it is read."""
BYTES_PER_TASK = 1536
BYTES_PER_BYTE = 4
"""What storing a batch takes for each of its tasks, and for each byte of it."""
LONG_TASK = 64 * 1024
"""Bytes of a task from which on its values are counted before it is read."""
TASK = msgspec.json.Decoder(TaskRequest)
NULL = msgspec.Raw(b"null")
PLACE = re.compile(r" - at (`key` in )?`\$(.*)`$", re.DOTALL)


Claim = Callable[[int], None]


class Batch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tasks/batch."""

    tasks: list[TaskRequest]


class CutBatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A batch of which the tasks are still to be read."""

    tasks: list[msgspec.Raw]


class CutGraph(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A graph of which the tasks are still to be read."""

    name: str | None = None
    defaults: msgspec.Raw = NULL
    tasks: list[msgspec.Raw] | dict[str, msgspec.Raw]


class Tally:
    """Counts tasks while a body is skimmed: one body at a time, which nothing interrupts."""

    def __init__(self) -> None:
        self._most = self._count = 0

    def begin(self, most: int) -> None:
        """Count from zero, up to `most`."""
        self._most, self._count = most, 0

    def count(self) -> None:
        """Count one more; raises TooLarge if that is too many."""
        self._count += 1
        if self._count > self._most:
            raise TooLarge(f"A request may have at most {self._most} tasks.", field="tasks")


TALLY = Tally()


class Counted(msgspec.Struct, gc=False):
    """A task of which nothing is kept."""

    def __post_init__(self) -> None:
        """Count this one."""
        TALLY.count()


class CountedBatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A batch of which only the tasks are counted."""

    tasks: list[Counted]


class CountedGraph(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A graph of which only the tasks are counted."""

    name: msgspec.Raw = NULL
    defaults: msgspec.Raw = NULL
    tasks: list[Counted] | dict[str, Counted]


BATCH = msgspec.json.Decoder(Batch)
GRAPH = msgspec.json.Decoder(GraphRequest)
CUT_BATCH = msgspec.json.Decoder(CutBatch)
CUT_GRAPH = msgspec.json.Decoder(CutGraph)
COUNTED_BATCH = msgspec.json.Decoder(CountedBatch)
COUNTED_GRAPH = msgspec.json.Decoder(CountedGraph)


def no_claim(amount: int) -> None:
    """Hold no memory: the caller has nobody to share it with."""


def estimated_memory(size: int, tasks: int) -> int:
    """Return about how many bytes it takes to store so many tasks of a body of `size` bytes."""
    return BYTES_PER_BYTE * size + BYTES_PER_TASK * tasks


async def read_batch(
    body: bytes, credential: Credential, limits: RequestSettings, claim: Claim = no_claim
) -> list[TaskSpec]:
    """Read and check the body of a batch; raises TooLarge, Malformed or Invalid.

    The memory that it takes is claimed by `claim` before it is read.
    """
    _check_count(body, COUNTED_BATCH, limits.batch_tasks)
    cut = decode(body, CUT_BATCH, limit=None)
    check_any(cut.tasks)
    claim(estimated_memory(len(body), len(cut.tasks)))
    reader = TaskReader(body, BATCH, limits.body_limit)
    tasks = (reader.read(raw, f"[{place}]") for place, raw in enumerate(cut.tasks))
    return await offload(len(cut.tasks), complete_all, tasks, credential)


async def read_graph(
    body: bytes, credential: Credential, limits: RequestSettings, claim: Claim = no_claim
) -> tuple[str | None, list[TaskSpec]]:
    """Read and check the body of a graph, and return its name and its tasks."""
    _check_count(body, COUNTED_GRAPH, limits.batch_tasks)
    cut = decode(body, CUT_GRAPH, limit=None)
    check_any(cut.tasks)
    claim(estimated_memory(len(body), len(cut.tasks)))
    reader = TaskReader(body, GRAPH, limits.body_limit)
    name, tasks = graph_name(cut.name), _graph_tasks(cut, reader)
    return name, await offload(len(cut.tasks), complete_all, tasks, credential)


def _check_count(body: bytes, counted: msgspec.json.Decoder[Any], most: int) -> None:
    """Raise TooLarge if there are more than `most` tasks, before anything is made of them."""
    # A task has two bytes at least.
    if len(body) > 2 * most:
        TALLY.begin(most)
        decode(body, counted, limit=None)


def _graph_tasks(cut: CutGraph, reader: "TaskReader") -> Iterator[TaskRequest]:
    defaults = None if cut.defaults == NULL else reader.read(cut.defaults, ".defaults")
    common = common_fields(defaults)
    if isinstance(cut.tasks, list):
        for index, raw in enumerate(cut.tasks):
            yield whole_task(reader.read(raw, f"[{index}]"), index, common)
    else:
        for ref, raw in cut.tasks.items():
            yield whole_task(reader.read(raw, "[...]"), ref, common)


class TaskReader:
    """Reads the tasks of one body, each by itself.

    What is wrong is said as if all of `body` had been read by the decoder `whole`.
    """

    def __init__(self, body: bytes, whole: msgspec.json.Decoder[Any], most_bytes: int) -> None:
        self._body = body
        self._whole = whole
        self._most_bytes = most_bytes
        self._most_values = max(MIN_VALUES, len(body) // BYTES_PER_VALUE)
        self._values = self._dependencies = 0

    def read(self, raw: msgspec.Raw, place: str) -> TaskRequest:
        """Return the task at `place`; raises TooLarge, Malformed or Invalid."""
        if len(raw) > LONG_TASK:
            self._check_size(raw, place)
        try:
            return self._counted(TASK.decode(raw))
        except msgspec.ValidationError as error:
            raise translate(_in_place(str(error), place), self._whole.type) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Something that cutting does not look at, such as half of a surrogate pair.
            if ONE_THING.holds(self._body):
                decode(self._body, self._whole)
            check_json(bytes(raw))
            raise Malformed("The body is not valid JSON.") from None

    def _check_size(self, raw: msgspec.Raw, place: str) -> None:
        """Hold a task to the limits of one that is submitted by itself."""
        if len(raw) > self._most_bytes:
            raise TooLarge(
                f"A task may have at most {self._most_bytes} bytes.", limit=self._most_bytes
            )
        if not ONE_THING.holds(bytes(raw)):
            raise ONE_THING.exceeded("A task")

    def _counted(self, task: TaskRequest) -> TaskRequest:
        """Return a task, unless those up to it have too much of what each may have a lot of."""
        if task.depends_on:
            self._dependencies += len(task.depends_on)
            check_number([self._dependencies])
        self._values += len(task.command or ()) + 2 * (
            len(task.env or ()) + len(task.labels or ()) + len(task.requires or ())
        )
        if self._values > self._most_values:
            raise TooLarge(
                f"The tasks of this request may have at most {self._most_values} arguments, "
                "variables and labels together; send fewer tasks at a time.",
                field="tasks",
                limit=self._most_values,
            )
        return task


def complete_all(tasks: Iterable[TaskRequest], credential: Credential) -> list[TaskSpec]:
    """Check many requests; raises Invalid for the first bad field, with its place."""
    specs = []
    completer = Completer(credential.plan)
    for index, task in enumerate(tasks):
        try:
            specs.append(completer.complete(task))
        except Invalid as error:
            where = f"tasks[{index}]"
            raise Invalid(f"{where}.{error.field}", f"{where}: {error.message}") from None
    return specs


def _in_place(message: str, place: str) -> str:
    """Return what is wrong with a task as a decoder says it of a whole body."""
    where = place if place.startswith(".") else f".tasks{place}"
    found = PLACE.search(message)
    if found is None:
        return f"{message} - at `${where}`"
    return f"{message[: found.start()]} - at {found[1] or ''}`${where}{found[2]}`"
