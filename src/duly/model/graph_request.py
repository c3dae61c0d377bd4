"""What a client may ask for as a graph: tasks that name each other, and what all have in common."""

from typing import Any

import msgspec

from duly.errors import Invalid
from duly.model.request import MAX_NAME, TaskRequest, check_text
from duly.model.steps import Pace, Steps

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


def named_tasks(asked: GraphRequest) -> Steps[list[TaskRequest]]:
    """Return the tasks of a graph, each with its ref."""
    pace = Pace()
    tasks = asked.tasks if isinstance(asked.tasks, list) else []
    if isinstance(asked.tasks, dict):
        for ref, task in asked.tasks.items():
            if pace.is_over():
                yield
            if task.ref not in (None, ref):
                raise Invalid(f"tasks.{ref}.ref", f"tasks.{ref} has another ref, {task.ref!r}.")
            task.ref = ref
            tasks.append(task)
    if not tasks:
        raise Invalid("tasks", "tasks is empty; give at least one.")
    for index, task in enumerate(tasks):
        if pace.is_over():
            yield
        if task.ref is None:
            raise Invalid(f"tasks[{index}].ref", f"tasks[{index}] has no ref; give it one.")
    return tasks


def whole_tasks(asked: GraphRequest) -> Steps[list[TaskRequest]]:
    """Return the tasks of a graph, each with its ref and with what all have in common."""
    tasks = yield from named_tasks(asked)
    common = _common(asked.defaults)
    pace = Pace()
    for task in tasks if common else ():
        if pace.is_over(len(common)):
            yield
        for name, value in common.items():
            if getattr(task, name) is None:
                setattr(task, name, value)
    return tasks


def _common(defaults: TaskRequest | None) -> dict[str, Any]:
    """Return what all tasks of a graph have that do not say otherwise."""
    if defaults is None:
        return {}
    for name in OWN:
        if getattr(defaults, name) is not None:
            raise Invalid(f"defaults.{name}", f"{name} is for each task to say.")
    return {
        name: value for name, value in msgspec.structs.asdict(defaults).items() if value is not None
    }
