"""Unique keys: what whoever asks for one that is held is told.

Which task holds a key is decided by an index of the live tasks; see `live_unique`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from duly.errors import Conflict, Invalid
from duly.model.task import OnConflict, Unique
from duly.store.database import Taken
from duly.store.tasks import NewTask

INDEX = "live_unique"


def is_conflict(error: Taken) -> bool:
    """Say whether two who asked for the same key at once met at the index."""
    return bool(error.details.get("index") == INDEX)


def settle(unique: Unique, holder: int) -> int:
    """Return the task that holds the key, if that is what was asked for; else raise Conflict."""
    if unique.on_conflict is OnConflict.RETURN:
        return holder
    raise conflict(unique, holder)


def conflict(unique: Unique, holder: int) -> Conflict:
    """Return what is told when a key is held."""
    return Conflict(
        f"Task {holder} has the unique key {unique.key!r}.",
        task=str(holder),
        unique_key=unique.key,
    )


@contextmanager
def decided() -> Iterator[None]:
    """Turn the index's own word, in a race that no look could have foreseen, into a Conflict."""
    try:
        yield
    except Taken as error:
        if is_conflict(error):
            raise Conflict("Another task has just taken the unique key.") from error
        raise


def check_distinct(new: Sequence[NewTask]) -> None:
    """Refuse a batch that asks for a key twice."""
    seen: dict[str, int] = {}
    for index, task in enumerate(new):
        unique = task.spec.unique
        if unique is not None and seen.setdefault(unique.key, index) != index:
            first = seen[unique.key]
            raise Invalid(
                f"tasks[{index}].unique.key",
                f"tasks[{first}] and tasks[{index}] have the same unique key {unique.key[:60]!r}.",
            )
