"""What the database knows about its object store."""

from uuid import UUID

import msgspec


class StoreRecord(msgspec.Struct, frozen=True):
    """The identity of the object store that holds the bytes of artifacts and logs."""

    id: UUID
    registered_by: str | None
    """The host that registered the store, and its `--store`; None before the first server."""
