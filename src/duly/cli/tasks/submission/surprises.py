"""Tells on stderr what a user may not expect of a task that is being submitted.

None of it is an error, so the output and the exit code stay as they are.
"""

from contextlib import suppress
from datetime import datetime

from duly.cli.connect import print_notice
from duly.cli.output.text import format_moment
from duly.cli.written_flags import as_written
from duly.client.shapes.task_shapes import Task, TaskFields
from duly.client.sync import Client
from duly.errors import DulyError

UNPLACEABLE = frozenset({"no_node_can_fit", "no_node_has_label"})
"""The codes of reasons for which no present node can ever run a task."""
DEMANDS = ("resources", "tier", "requires")


def tell_if_past(fields: TaskFields, now: datetime) -> None:
    """Say that the time given by --run-at has passed, so it does not delay the start."""
    at = fields.get("run_at")
    if isinstance(at, datetime) and at < now:
        print_notice(
            f"{as_written('--run-at')}: {format_moment(at, now)} has passed, so the task starts as "
            "soon as it can."
        )


def tell_if_unplaceable(client: Client, task: Task, fields: TaskFields) -> None:
    """Say that no node can run a task with the given resources or labels.

    It costs a request, so only a task that asks for something is looked at.
    """
    if task["status"] != "waiting" or not any(name in fields for name in DEMANDS):
        return
    with suppress(DulyError):  # A key that may only submit cannot ask.
        reason = client.explain(task["id"])
        if reason["code"] in UNPLACEABLE:
            print_notice(f"The task cannot start now. {reason['message']}")


def describe_earlier(task: Task, fields: TaskFields) -> str:
    """Return a sentence about a task that was not created because it exists already."""
    key = "unique key" if fields.get("idempotency_key") is None else "idempotency key"
    return (
        f"Task {task['id']} has this {key} already; it is {task['status']}. Nothing was submitted."
    )
