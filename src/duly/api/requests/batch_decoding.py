"""Decodes the bodies of batches and graphs, task by task and within a memory limit.

The first pass counts the tasks and keeps nothing. The second splits the body into the raw JSON
of each task. The third decodes and checks one task at a time, so that the first invalid task
ends the request before the others take memory.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from duly.api.limits.decoding_limit import SINGLE_REQUEST_LIMIT
from duly.api.requests.body import check_json, decode, translate_validation_error
from duly.config import RequestSettings
from duly.errors import Invalid, Malformed, TooLarge
from duly.model.graph import check_dependency_count
from duly.model.requests.graph_request import (
    GraphRequest,
    apply_defaults,
    check_not_empty,
    common_fields,
    graph_name,
)
from duly.model.requests.task_request import Completer, TaskRequest
from duly.model.task import TaskSpec
from duly.model.tenant import Credential
from duly.server.offload import offload

MIN_VALUE_LIMIT = 300_000
BODY_BYTES_PER_VALUE = 12
"""The arguments, variables and labels of all tasks together are limited to `MIN_VALUE_LIMIT`, or
to one per so many bytes of the body: a short string takes 70 bytes once decoded."""
MEMORY_BYTES_PER_TASK = 1536
MEMORY_BYTES_PER_BODY_BYTE = 4
"""Memory that storing a batch takes for each task, and for each byte of the body."""
LONG_TASK_BYTES = 64 * 1024
"""The values of a task larger than this are counted before it is decoded."""
TASK_DECODER = msgspec.json.Decoder(TaskRequest)
NULL = msgspec.Raw(b"null")
ERROR_PATH = re.compile(r" - at (`key` in )?`\$(.*)`$", re.DOTALL)


ClaimMemory = Callable[[int], None]


class Batch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tasks/batch."""

    tasks: list[TaskRequest]


class RawBatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A batch whose tasks are not decoded yet."""

    tasks: list[msgspec.Raw]


class RawGraph(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A graph whose tasks are not decoded yet."""

    name: str | None = None
    defaults: msgspec.Raw = NULL
    tasks: list[msgspec.Raw] | dict[str, msgspec.Raw]


class TaskCounter:
    """Counts the tasks of a body while it is skimmed.

    One counter serves all requests: skimming does not await, so bodies never interleave.
    """

    def __init__(self) -> None:
        self._limit = self._count = 0

    def reset(self, limit: int) -> None:
        """Start from zero, with room for `limit` tasks."""
        self._limit, self._count = limit, 0

    def increment(self) -> None:
        """Count one more task; raises TooLarge above the limit."""
        self._count += 1
        if self._count > self._limit:
            raise TooLarge(
                f"A request may have at most {self._limit} tasks. Send them in several requests.",
                field="tasks",
            )


TASK_COUNTER = TaskCounter()


class SkimmedTask(msgspec.Struct, gc=False):
    """A task that is counted and otherwise discarded."""

    def __post_init__(self) -> None:
        """Count this task."""
        TASK_COUNTER.increment()


class SkimmedBatch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A batch whose tasks are only counted."""

    tasks: list[SkimmedTask]


class SkimmedGraph(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A graph whose tasks are only counted."""

    name: msgspec.Raw = NULL
    defaults: msgspec.Raw = NULL
    tasks: list[SkimmedTask] | dict[str, SkimmedTask]


BATCH_DECODER = msgspec.json.Decoder(Batch)
GRAPH_DECODER = msgspec.json.Decoder(GraphRequest)
RAW_BATCH_DECODER = msgspec.json.Decoder(RawBatch)
RAW_GRAPH_DECODER = msgspec.json.Decoder(RawGraph)
SKIMMED_BATCH_DECODER = msgspec.json.Decoder(SkimmedBatch)
SKIMMED_GRAPH_DECODER = msgspec.json.Decoder(SkimmedGraph)


def claim_nothing(amount: int) -> None:
    """Claim no memory: for callers that share the process with nobody."""


def estimated_memory(size: int, tasks: int) -> int:
    """Return about how many bytes it takes to store `tasks` tasks from a body of `size` bytes."""
    return MEMORY_BYTES_PER_BODY_BYTE * size + MEMORY_BYTES_PER_TASK * tasks


async def read_batch(
    body: bytes, credential: Credential, limits: RequestSettings, claim: ClaimMemory = claim_nothing
) -> list[TaskSpec]:
    """Decode and check the body of a batch; raises TooLarge, Malformed or Invalid.

    The memory it needs is claimed with `claim` before its tasks are decoded.
    """
    _check_count(body, SKIMMED_BATCH_DECODER, limits.batch_tasks)
    batch = decode(body, RAW_BATCH_DECODER, limit=None)
    check_not_empty(batch.tasks)
    claim(estimated_memory(len(body), len(batch.tasks)))
    reader = TaskReader(body, BATCH_DECODER, limits.body_limit)
    tasks = (reader.read(raw, f"[{index}]") for index, raw in enumerate(batch.tasks))
    return await offload(len(batch.tasks), complete_all, tasks, credential)


async def read_graph(
    body: bytes, credential: Credential, limits: RequestSettings, claim: ClaimMemory = claim_nothing
) -> tuple[str | None, list[TaskSpec]]:
    """Decode and check the body of a graph, and return its name and its tasks."""
    _check_count(body, SKIMMED_GRAPH_DECODER, limits.batch_tasks)
    graph = decode(body, RAW_GRAPH_DECODER, limit=None)
    check_not_empty(graph.tasks)
    claim(estimated_memory(len(body), len(graph.tasks)))
    reader = TaskReader(body, GRAPH_DECODER, limits.body_limit)
    name, tasks = graph_name(graph.name), _graph_tasks(graph, reader)
    return name, await offload(len(graph.tasks), complete_all, tasks, credential)


def _check_count(body: bytes, skimmer: msgspec.json.Decoder[Any], limit: int) -> None:
    """Raise TooLarge if the body has more than `limit` tasks, before any of them is decoded."""
    # A task takes at least two bytes.
    if len(body) > 2 * limit:
        TASK_COUNTER.reset(limit)
        decode(body, skimmer, limit=None)


def _graph_tasks(graph: RawGraph, reader: "TaskReader") -> Iterator[TaskRequest]:
    defaults = None if graph.defaults == NULL else reader.read(graph.defaults, ".defaults")
    common = common_fields(defaults)
    if isinstance(graph.tasks, list):
        for index, raw in enumerate(graph.tasks):
            yield apply_defaults(reader.read(raw, f"[{index}]"), index, common)
    else:
        for ref, raw in graph.tasks.items():
            yield apply_defaults(reader.read(raw, "[...]"), ref, common)


class TaskReader:
    """Decodes the tasks of one body one by one.

    Errors read as if `body_decoder` had decoded the whole body.
    """

    def __init__(
        self, body: bytes, body_decoder: msgspec.json.Decoder[Any], max_task_bytes: int
    ) -> None:
        self._body = body
        self._body_decoder = body_decoder
        self._max_task_bytes = max_task_bytes
        self._max_values = max(MIN_VALUE_LIMIT, len(body) // BODY_BYTES_PER_VALUE)
        self._values = self._dependencies = 0

    def read(self, raw: msgspec.Raw, path: str) -> TaskRequest:
        """Return the task at `path`; raises TooLarge, Malformed or Invalid."""
        if len(raw) > LONG_TASK_BYTES:
            self._check_size(raw, path)
        try:
            task = TASK_DECODER.decode(raw)
            self._check_totals(task)
            return task
        except msgspec.ValidationError as error:
            raise translate_validation_error(
                _with_path(str(error), path), self._body_decoder.type
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # An error that splitting does not detect, such as half of a surrogate pair.
            if SINGLE_REQUEST_LIMIT.allows(self._body):
                decode(self._body, self._body_decoder)
            check_json(bytes(raw))
            raise Malformed("The body is not valid JSON.") from None

    def _check_size(self, raw: msgspec.Raw, path: str) -> None:
        """Apply the limits of a task that is submitted by itself."""
        field = _field_prefix(path).removeprefix(".").removesuffix("[...]")
        if len(raw) > self._max_task_bytes:
            raise TooLarge(
                f"A task may have at most {self._max_task_bytes} bytes.",
                field=field,
                limit=self._max_task_bytes,
            )
        if not SINGLE_REQUEST_LIMIT.allows(bytes(raw)):
            raise SINGLE_REQUEST_LIMIT.error("A task", field=field)

    def _check_totals(self, task: TaskRequest) -> None:
        """Raise TooLarge if the tasks so far have too many dependencies or values in total."""
        if task.depends_on:
            self._dependencies += len(task.depends_on)
            check_dependency_count([self._dependencies])
        self._values += len(task.command or ()) + 2 * (
            len(task.env or ()) + len(task.labels or ()) + len(task.requires or ())
        )
        if task.call is not None:
            self._values += len(task.call.args or ()) + 2 * len(task.call.kwargs or ())
        if self._values > self._max_values:
            raise TooLarge(
                f"The tasks of one request may have at most {self._max_values} arguments, "
                "variables and labels in total. Send fewer tasks at a time.",
                field="tasks",
                limit=self._max_values,
            )


def complete_all(tasks: Iterable[TaskRequest], credential: Credential) -> list[TaskSpec]:
    """Check tasks and fill in the plan's defaults; raises Invalid with the first bad field."""
    specs = []
    completer = Completer(credential.plan)
    for index, task in enumerate(tasks):
        try:
            specs.append(completer.complete(task))
        except Invalid as error:
            raise error.within(f"tasks[{index}]") from None
    return specs


def _with_path(message: str, task_path: str) -> str:
    """Return a decoder's message about a task with the field's path in the whole body."""
    prefix = _field_prefix(task_path)
    match = ERROR_PATH.search(message)
    if match is None:
        return f"{message} - at `${prefix}`"
    return f"{message[: match.start()]} - at {match[1] or ''}`${prefix}{match[2]}`"


def _field_prefix(task_path: str) -> str:
    """Return the path of a task, or of the defaults, in the whole body."""
    return task_path if task_path.startswith(".") else f".tasks{task_path}"
