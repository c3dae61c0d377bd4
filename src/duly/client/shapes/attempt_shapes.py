"""The types of requests and responses about attempts across tasks."""

from collections.abc import Sequence
from typing import TypedDict

from duly.client.shapes.task_shapes import Attempt, Instant


class ListedAttempt(Attempt):
    """An attempt with the id, name, ref, tenant and user of its task."""

    task: str
    name: str | None
    ref: str | None
    tenant: str
    user: str | None


class AttemptFilter(TypedDict, total=False):
    """Filters for attempts, combined with and.

    `name` is the name or ref of the task; `outcome` is one or several, and leaves out running
    attempts; `since` is the earliest lease, or a duration back from now such as "1h". `tenant` is
    the only tenant whose attempts are listed, and needs the scope `admin`.
    """

    user: str | None
    name: str | None
    outcome: str | Sequence[str] | None
    since: Instant | None
    tenant: str | None
