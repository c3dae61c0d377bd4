"""Reads and writes the mark of an object store: the id by which a database knows it."""

from uuid import UUID

import msgspec
import obstore

from duly.server.artifacts.log_store import open_store

NAME = "duly-store.json"


class _Mark(msgspec.Struct):
    id: UUID


async def read_mark(store_url: str) -> UUID | None:
    """Return the id that the store carries, or None; raises ValueError for what is no mark."""
    try:
        response = await obstore.get_async(open_store(store_url), NAME)
    except FileNotFoundError:
        return None
    return msgspec.json.decode(bytes(await response.bytes_async()), type=_Mark).id


async def write_mark(store_url: str, store: UUID) -> None:
    """Mark the store; an earlier mark is replaced."""
    await obstore.put_async(
        open_store(store_url), NAME, msgspec.json.encode(_Mark(store)), use_multipart=False
    )
