"""Resolves submissions whose unique key is held by another live task.

A unique index of the live tasks, `live_unique`, decides which task holds a key.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from duly.errors import Conflict, Invalid
from duly.model.task import OnConflict, TaskSpec, Unique
from duly.store.database import Taken

UNIQUE_KEY_INDEX = "live_unique"


def is_key_conflict(error: Taken) -> bool:
    """Return True if two transactions inserted the same unique key concurrently."""
    return bool(error.details.get("index") == UNIQUE_KEY_INDEX)


def resolve_conflict(unique: Unique, holder: int) -> int:
    """Return the task that holds the key if the submission asks for that; else raise Conflict."""
    if unique.on_conflict is OnConflict.RETURN:
        return holder
    raise conflict_error(unique, holder)


def conflict_error(unique: Unique, holder: int) -> Conflict:
    """Return the error for a unique key that `holder` holds."""
    return Conflict(
        f"Task {holder} has the unique key {unique.key!r} already.",
        task=str(holder),
        unique_key=unique.key,
    )


@contextmanager
def violations_as_conflicts() -> Iterator[None]:
    """Raise Conflict when a concurrent transaction takes the unique key first."""
    try:
        yield
    except Taken as error:
        if is_key_conflict(error):
            raise Conflict("Another task has just taken the unique key.") from error
        raise


def check_distinct(specs: Sequence[TaskSpec]) -> None:
    """Refuse a batch, in the order of the request, with two tasks of one unique key."""
    first_index: dict[str, int] = {}
    for index, spec in enumerate(specs):
        unique = spec.unique
        if unique is not None and first_index.setdefault(unique.key, index) != index:
            first = first_index[unique.key]
            raise Invalid(
                f"tasks[{index}].unique.key",
                f"tasks[{first}] has the unique key {unique.key[:60]!r}, too. Only one task can.",
            )
