"""Decides whether a server may use an object store.

The bytes of artifacts and logs are in one store that all servers of a database share. A server on
another store would not find what the others have written, and report as missing what is merely
elsewhere; and on the store of another database it would delete what that database needs. So the
store carries a mark, and the database knows it.
"""

from enum import StrEnum
from uuid import UUID

from duly.model.object_store import StoreRecord


class StoreDecision(StrEnum):
    """What a server does about the object store that it was given."""

    USE = "use"
    REGISTER = "register"
    """Mark the store, and make it the store of the database."""
    REFUSE_UNMARKED = "refuse_unmarked"
    """The database has a store, and it is not this one."""
    REFUSE_FOREIGN = "refuse_foreign"
    """The store belongs to another database."""


def decide(record: StoreRecord, mark: UUID | None) -> StoreDecision:
    """Compare the store of the database with the mark of the store that was given, if it has one.

    A mark that is ours on an unregistered store was left by a server that was killed in between.
    """
    if mark is not None and mark != record.id:
        return StoreDecision.REFUSE_FOREIGN
    if record.registered_by is None:
        return StoreDecision.REGISTER
    return StoreDecision.REFUSE_UNMARKED if mark is None else StoreDecision.USE
