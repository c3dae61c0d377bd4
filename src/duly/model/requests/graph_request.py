"""What a client may ask for as a graph: tasks that name each other, and what all have in common."""

from collections.abc import Mapping, Sized
from typing import Any

import msgspec

from duly.errors import Invalid
from duly.model.request import MAX_NAME, TaskRequest, check_text

OWN = ("ref", "depends_on", "idempotency_key", "unique")
"""What every task says for itself."""


class GraphRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/graphs; tasks are a list, or an object by their refs."""

    name: str | None = None
    defaults: TaskRequest | None = None
    tasks: list[TaskRequest] | dict[str, TaskRequest]


def graph_name(name: str | None) -> str | None:
    """Return the name of a graph; raises Invalid for one that is empty or too long."""
    if name is not None and not 1 <= len(check_text(name, "name")) <= MAX_NAME:
        raise Invalid("name", f"name has 1 to {MAX_NAME} characters.")
    return name


def named_tasks(asked: GraphRequest) -> list[TaskRequest]:
    """Return the tasks of a graph, each with its ref."""
    return _tasks(asked, {})


def whole_tasks(asked: GraphRequest) -> list[TaskRequest]:
    """Return the tasks of a graph, each with its ref and with what all have in common."""
    return _tasks(asked, common_fields(asked.defaults))


def _tasks(asked: GraphRequest, common: Mapping[str, Any]) -> list[TaskRequest]:
    check_any(asked.tasks)
    by_ref = asked.tasks.items() if isinstance(asked.tasks, dict) else enumerate(asked.tasks)
    return [whole_task(task, place, common) for place, task in by_ref]


def whole_task(task: TaskRequest, place: str | int, common: Mapping[str, Any]) -> TaskRequest:
    """Return a task with its ref and the `common` fields; `place` is its ref, or its index."""
    if isinstance(place, str):
        if task.ref not in (None, place):
            raise Invalid(f"tasks.{place}.ref", f"tasks.{place} has another ref, {task.ref!r}.")
        task.ref = place
    if task.ref is None:
        raise Invalid(f"tasks[{place}].ref", f"tasks[{place}] has no ref; give it one.")
    for name, value in common.items():
        if getattr(task, name) is None:
            setattr(task, name, value)
    return task


def check_any(tasks: Sized) -> None:
    """Raise Invalid if there is no task."""
    if not tasks:
        raise Invalid("tasks", "tasks is empty; give at least one.")


def common_fields(defaults: TaskRequest | None) -> dict[str, Any]:
    """Return what all tasks of a graph have that do not say otherwise."""
    if defaults is None:
        return {}
    for name in OWN:
        if getattr(defaults, name) is not None:
            raise Invalid(f"defaults.{name}", f"{name} is for each task to say.")
    return {
        name: value for name, value in msgspec.structs.asdict(defaults).items() if value is not None
    }
