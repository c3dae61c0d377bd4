"""The request for a schedule, and how its task becomes an occurrence.

The task or graph is stored as requested, not as completed by the plan: every occurrence gets what
the plan says when it fires, as if the tenant submitted it then.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from duly.duration import parse_time
from duly.errors import Invalid, TooLarge
from duly.model.queues.queue import Queue
from duly.model.requests.call_request import call_as_fields, call_of_fields, keep_hidden
from duly.model.requests.graph_request import GraphRequest, graph_name, named_tasks
from duly.model.requests.recurrence_request import RULE_FIELDS, RecurrenceRequest
from duly.model.requests.task_request import MAX_NAME_CHARS, TaskRequest, complete
from duly.model.requests.texts import check_text
from duly.model.schedules.schedule import Misfire, Overlap
from duly.model.task import TaskSpec
from duly.model.tenant import Plan
from duly.model.wording import count_of, either

E = TypeVar("E", bound=StrEnum)
NOT_IN_A_TEMPLATE = {
    "run_at": "its task starts when it fires. To spread the starts, use jitter",
    "idempotency_key": "every occurrence would be the same task. Leave it out",
    "depends_on": "the task that it names ends only once. To run several tasks in order, use graph",
}
NOT_IN_A_GRAPH = {
    "run_at": NOT_IN_A_TEMPLATE["run_at"],
    "idempotency_key": NOT_IN_A_TEMPLATE["idempotency_key"],
    "unique": "overlap decides what happens while an earlier occurrence has not ended. Use that",
}
MAX_GRAPH_TASKS = 10_000
"""Tasks in the graph of a schedule: one transaction stores them all."""
MAX_GRAPH_DEPENDENCIES = 50_000
"""Dependencies in the graph of a schedule."""
TIME_FIELDS = ("run_at", "start_at", "end_at")
TaskOrGraph = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]
"""The task and the graph of a schedule as stored; one of them is None."""


class ScheduleRequest(RecurrenceRequest, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/schedules.

    Exactly one field defines when it fires (run_at, daily, …, cron), and exactly one what it
    submits (task or graph).
    """

    name: str | None = None
    task: TaskRequest | None = None
    graph: GraphRequest | None = None
    misfire: str | None = None
    overlap: str | None = None


class ScheduleChange(RecurrenceRequest, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/schedules/{id}; fields that are left out stay unchanged."""

    name: str | None = None
    task: TaskRequest | None = None
    graph: GraphRequest | None = None
    misfire: str | None = None
    overlap: str | None = None
    next_run_at: str | None = None


RECURRENCE_FIELDS = RecurrenceRequest.__struct_fields__


def recurrence_fields(request: RecurrenceRequest) -> dict[str, Any]:
    """Return the recurrence as a schedule stores it: the given fields, with times in UTC."""
    given = {
        name: value for name in RECURRENCE_FIELDS if (value := getattr(request, name)) is not None
    }
    for name in TIME_FIELDS:
        if name in given:
            given[name] = parse_time(given[name], name).astimezone(UTC).isoformat()
    return given


def update_recurrence_fields(
    written: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a recurrence with fields changed; a new rule replaces the old one."""
    kept = dict(written)
    ways = {name for name in RULE_FIELDS if changes.get(name) is not None}
    if ways:
        kept = {name: value for name, value in kept.items() if name not in RULE_FIELDS}
        if not ways & {"monthly", "annually"}:
            kept.pop("short_month", None)
    for name in RECURRENCE_FIELDS:
        if name in changes:
            kept.pop(name, None)
            if changes[name] is not None:
                kept[name] = changes[name]
    return kept


def check_schedule_name(name: str | None) -> str | None:
    """Return the name of a schedule; raises Invalid if it is empty or too long."""
    if name is not None and not 1 <= len(name.strip()) <= len(name) <= MAX_NAME_CHARS:
        raise Invalid(
            "name",
            f"it has {count_of(len(name.strip()), 'character')}. Use 1 to {MAX_NAME_CHARS}, or "
            "leave it out.",
        )
    return None if name is None else check_text(name, "name")


def parse_misfire(asked: str | None) -> Misfire:
    """Return the policy for missed fire times; by default, the last one is made up for."""
    return _choice(asked, Misfire, "misfire", Misfire.ONCE)


def parse_overlap(asked: str | None) -> Overlap:
    """Return the policy for overlap; by default, none starts while another is live."""
    return _choice(asked, Overlap, "overlap", Overlap.SKIP)


def check_template(task: Mapping[str, Any], plan: Plan) -> None:
    """Raise Invalid if a task could not be submitted now, or not by a schedule."""
    request = msgspec.convert(requested_task(task), TaskRequest)
    for field, why in NOT_IN_A_TEMPLATE.items():
        if getattr(request, field) is not None:
            raise Invalid(f"task.{field}", f"a schedule cannot have it, because {why}.")
    try:
        complete(request, plan)
    except Invalid as error:
        raise error.within("task") from None
    except TooLarge as error:
        raise TooLarge(f"task: {error.message}", field="task") from None


def check_graph_template(tasks: Sequence[TaskRequest], plan: Plan) -> None:
    """Raise Invalid if a schedule could never submit the tasks of a graph together."""
    if len(tasks) > MAX_GRAPH_TASKS:
        raise TooLarge(
            f"The graph has {len(tasks)} tasks; a schedule may have at most {MAX_GRAPH_TASKS}.",
            field="tasks",
        )
    edges = sum(len(task.depends_on or ()) for task in tasks)
    if edges > MAX_GRAPH_DEPENDENCIES:
        raise TooLarge(
            f"The graph has {edges} dependencies; a schedule may have at most "
            f"{MAX_GRAPH_DEPENDENCIES}.",
            field="tasks",
        )
    for most, limit in ((plan.burst, "burst"), (plan.max_waiting, "max_waiting")):
        if most is not None and len(tasks) > most:
            raise Invalid(
                "tasks",
                f"the graph has {len(tasks)} tasks; the plan {plan.name!r} takes at most {most} at "
                f"once ({limit}).",
                limit=limit,
            )
    for index, request in enumerate(tasks):
        where = f"tasks[{index}]"
        for field, why in NOT_IN_A_GRAPH.items():
            if getattr(request, field) is not None:
                raise Invalid(f"{where}.{field}", f"a schedule cannot have it, because {why}.")
        for number, upstream in enumerate(request.depends_on or ()):
            name = upstream if isinstance(upstream, str) else upstream.task
            if name.isdecimal():
                raise Invalid(
                    f"{where}.depends_on[{number}]",
                    f"{name[:60]} is an existing task. In a schedule, name tasks of its own graph "
                    "by their refs.",
                )


def task_template(request: TaskRequest) -> dict[str, Any]:
    """Return a task as a schedule stores it: the given fields."""
    fields = msgspec.structs.asdict(request)
    if request.call is not None:
        fields["call"] = call_as_fields(request.call)
    return _without_nulls(msgspec.to_builtins(fields))


def requested_task(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request for a task that a schedule has stored."""
    if "call" not in template:
        return dict(template)
    return {**template, "call": call_of_fields(template["call"])}


def keep_hidden_arguments(new: TaskRequest | None, old: Mapping[str, Any] | None) -> None:
    """Put back the secret arguments of a stored task that its new request shows as hidden."""
    if new is not None and new.call is not None and old is not None and "call" in old:
        keep_hidden(new.call, call_of_fields(old["call"]))


def requested_graph(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request for a graph that a schedule has stored."""
    graph = {**template, "tasks": [requested_task(task) for task in template["tasks"]]}
    if "defaults" in template:
        graph["defaults"] = requested_task(template["defaults"])
    return graph


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not null, recursively."""
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if value is not None
    }


def schedule_template(task: TaskRequest | None, graph: GraphRequest | None) -> TaskOrGraph:
    """Return the task or graph as a schedule stores it; raises Invalid unless one is given."""
    if task is None and graph is None:
        raise Invalid("task", "it is missing. Give a task or a graph to submit.")
    if task is not None and graph is not None:
        raise Invalid("graph", "a task is given, too. Give either a task or a graph.")
    if task is not None:
        return task_template(task), None
    return None, None if graph is None else _graph_template(graph)


def _graph_template(request: GraphRequest) -> dict[str, Any]:
    """Return a graph as a schedule stores it: the given fields, with the tasks as a list."""
    try:
        kept: dict[str, Any] = {"tasks": [task_template(task) for task in named_tasks(request)]}
        if request.name is not None:
            kept["name"] = graph_name(request.name)
    except Invalid as error:
        raise error.within("graph") from None
    if request.defaults is not None:
        kept["defaults"] = task_template(request.defaults)
    return kept


def as_occurrence(spec: TaskSpec, start_at: datetime | None) -> TaskSpec:
    """Return a task as an occurrence that starts at `start_at`."""
    return msgspec.structs.replace(spec, run_at=start_at, queue=spec.queue or Queue.PERIODIC)


def _choice(asked: str | None, kind: type[E], field: str, default: E) -> E:
    if asked is None:
        return default
    try:
        return kind(asked)
    except ValueError:
        raise Invalid(field, f"{asked[:40]!r} is unknown. Use {either(kind)}.") from None
