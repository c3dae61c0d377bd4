"""The request for a graph: tasks that depend on each other by ref, and their common defaults."""

from collections.abc import Mapping, Sized
from typing import Any

import msgspec

from duly.errors import Invalid
from duly.model.requests.task_request import MAX_NAME_CHARS, TaskRequest
from duly.model.requests.texts import check_text
from duly.model.wording import count_of

PER_TASK_FIELDS = ("ref", "depends_on", "idempotency_key", "unique")
"""Fields that each task sets itself, never the defaults."""


class GraphRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/graphs; tasks are a list, or an object keyed by ref."""

    name: str | None = None
    defaults: TaskRequest | None = None
    tasks: list[TaskRequest] | dict[str, TaskRequest]


def graph_name(name: str | None) -> str | None:
    """Return the name of a graph; raises Invalid if it is empty or too long."""
    if name is not None and not 1 <= len(check_text(name, "name")) <= MAX_NAME_CHARS:
        raise Invalid(
            "name", f"it has {count_of(len(name), 'character')}. Use 1 to {MAX_NAME_CHARS}."
        )
    return name


def named_tasks(asked: GraphRequest) -> list[TaskRequest]:
    """Return the tasks of a graph, each with its ref."""
    return _tasks(asked, {})


def tasks_with_defaults(asked: GraphRequest) -> list[TaskRequest]:
    """Return the tasks of a graph, each with its ref and the defaults."""
    return _tasks(asked, common_fields(asked.defaults))


def _tasks(asked: GraphRequest, common: Mapping[str, Any]) -> list[TaskRequest]:
    check_not_empty(asked.tasks)
    by_ref = asked.tasks.items() if isinstance(asked.tasks, dict) else enumerate(asked.tasks)
    return [apply_defaults(task, place, common) for place, task in by_ref]


def apply_defaults(task: TaskRequest, place: str | int, common: Mapping[str, Any]) -> TaskRequest:
    """Return a task with its ref and the `common` fields; `place` is its ref, or its index."""
    if isinstance(place, str):
        if task.ref not in (None, place):
            raise Invalid(
                f"tasks.{place}.ref", f"{task.ref!r} differs from the key {place!r}. Leave it out."
            )
        task.ref = place
    if task.ref is None:
        raise Invalid(f"tasks[{place}].ref", "it is missing. Give each task of a graph a ref.")
    for name, value in common.items():
        if getattr(task, name) is None:
            setattr(task, name, value)
    return task


def check_not_empty(tasks: Sized) -> None:
    """Raise Invalid if there is no task."""
    if not tasks:
        raise Invalid("tasks", "it is empty. Give at least one task.")


def common_fields(defaults: TaskRequest | None) -> dict[str, Any]:
    """Return the fields that the defaults set; raises Invalid for one that is set per task."""
    if defaults is None:
        return {}
    for name in PER_TASK_FIELDS:
        if getattr(defaults, name) is not None:
            raise Invalid(f"defaults.{name}", "it cannot be a default. Set it in each task.")
    return {
        name: value for name, value in msgspec.structs.asdict(defaults).items() if value is not None
    }
