"""Reads and writes the mark of an object store: the id by which a database knows it."""

from typing import Any
from uuid import UUID

import msgspec
import obstore

NAME = "duly-store.json"


class _Mark(msgspec.Struct):
    id: UUID


async def read_mark(store: Any) -> UUID | None:
    """Return the id that the store carries, or None; raises ValueError for what is no mark."""
    try:
        response = await obstore.get_async(store, NAME)
    except FileNotFoundError:
        return None
    return msgspec.json.decode(bytes(await response.bytes_async()), type=_Mark).id


async def write_mark(store: Any, store_id: UUID) -> None:
    """Mark the store; an earlier mark is replaced."""
    await obstore.put_async(store, NAME, msgspec.json.encode(_Mark(store_id)), use_multipart=False)
