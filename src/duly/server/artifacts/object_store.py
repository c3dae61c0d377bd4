"""Stores the bytes of artifacts in the object store.

A blob is stored in parts of a fixed size, `artifacts/<tenant>/<blob>.<number>`: every store
writes a part as a whole or not at all, and no more than one is held in memory. Blob ids are
never reused, so deleting a part cannot hit one that another upload has just written.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

import obstore

from duly.errors import Unavailable, UnknownArtifact
from duly.server.artifacts.store_access import STORE_ERRORS, open_store
from duly.server.artifacts.store_guard import StoreGuard
from duly.store.tasks.artifacts import Blob

PART_BYTES = 4 * 2**20
"""The size of a part; the last may be smaller. Must never change, as names do not carry it."""
MAX_CONCURRENT_HEADS = 32
"""Parts whose sizes are read concurrently, as a remote object store has a high latency."""
MAX_PIECE_BYTES = 2**20
"""The most bytes that one response to a node carries."""
READ_BYTES = 2**18
"""The bytes read at a time for a client; held in memory, twice, for as long as it is slow."""
MISSING_BYTES = "The bytes of the artifact are missing in the object store. Upload it again."


class ObjectStore:
    """The bytes of all artifacts, in one object store."""

    def __init__(self, store_url: str, guard: StoreGuard) -> None:
        self._store = open_store(store_url)
        self._guard = guard

    async def put(self, tenant_id: int, blob: int, number: int, data: bytes) -> None:
        """Store a part; raises Unavailable when the store cannot take it."""
        await self._guard.confirm()
        try:
            await obstore.put_async(
                self._store, _key(tenant_id, blob, number), data, use_multipart=False
            )
        except STORE_ERRORS as error:
            raise Unavailable(
                "The object store is not available. Nothing was stored; try again."
            ) from error

    async def is_whole(self, blob: Blob) -> bool:
        """Return True if all parts exist with the expected sizes.

        Raises Unavailable if they are missing because the store is.
        """
        parts = list(_parts(blob.bytes))
        for first in range(0, len(parts), MAX_CONCURRENT_HEADS):
            batch = parts[first : first + MAX_CONCURRENT_HEADS]
            sizes = await asyncio.gather(*(self._size(blob, number) for number, _ in batch))
            if sizes != [size for _, size in batch]:
                await self._guard.confirm()
                return False
        return True

    async def _size(self, blob: Blob, number: int) -> int | None:
        try:
            meta = await obstore.head_async(self._store, _key(blob.tenant_id, blob.id, number))
        except FileNotFoundError:
            return None
        except STORE_ERRORS as error:
            raise Unavailable("The object store cannot be read now.") from error
        size: int = meta["size"]
        return size

    async def read(self, blob: Blob) -> AsyncIterator[bytes]:
        """Yield the bytes of a blob, at most `READ_BYTES` at a time."""
        for number, size in _parts(blob.bytes):
            key = _key(blob.tenant_id, blob.id, number)
            for start in range(0, size, READ_BYTES):
                end = min(start + READ_BYTES, size)
                yield bytes(await obstore.get_range_async(self._store, key, start=start, end=end))

    async def piece(self, blob: Blob, offset: int) -> bytes:
        """Return bytes from `offset` on, up to the end of their part; none at the end of the blob.

        Not the whole part, so that a thousand nodes that begin at once each get a piece soon.
        """
        if offset >= blob.bytes:
            return b""
        number, start = divmod(offset, PART_BYTES)
        end = min(start + MAX_PIECE_BYTES, PART_BYTES, blob.bytes - number * PART_BYTES)
        key = _key(blob.tenant_id, blob.id, number)
        try:
            data = await obstore.get_range_async(self._store, key, start=start, end=end)
        except FileNotFoundError as error:
            await self._guard.confirm()
            raise artifact_gone() from error
        except STORE_ERRORS as error:
            raise Unavailable("The object store cannot be read now.") from error
        return bytes(data)

    async def drop(self, blob: Blob) -> None:
        """Delete the bytes of a blob, as far as they exist."""
        await self._delete(
            _key(blob.tenant_id, blob.id, number) for number, _ in _parts(blob.bytes)
        )

    async def tenants(self) -> list[int]:
        """Return the tenants that have bytes in the store."""
        listing = await obstore.list_with_delimiter_async(self._store, "artifacts")
        names = [prefix.rstrip("/").rpartition("/")[2] for prefix in listing["common_prefixes"]]
        return sorted(int(name) for name in names if name.isdigit())

    async def blobs(self, tenant_id: int) -> AsyncIterator[dict[int, list[str]]]:
        """Yield the ids of a tenant's blobs with the keys of their parts, a page at a time."""
        async for batch in obstore.list(self._store, _folder(tenant_id), chunk_size=1000):
            keys_by_blob: dict[int, list[str]] = {}
            for meta in batch:
                name = meta["path"].rpartition("/")[2].partition(".")[0]
                if name.isdigit():
                    keys_by_blob.setdefault(int(name), []).append(meta["path"])
            yield keys_by_blob

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete parts by the keys that `blobs` has yielded."""
        await self._delete(keys)

    async def _delete(self, keys: Iterable[str]) -> None:
        await self._guard.confirm()
        for key in keys:
            try:
                await obstore.delete_async(self._store, key)
            except FileNotFoundError:
                continue
            await asyncio.sleep(0)


def bytes_missing() -> Unavailable:
    """Return the error for a client when bytes of an artifact are missing."""
    return Unavailable(MISSING_BYTES)


def artifact_gone() -> UnknownArtifact:
    """Return the error for a node in that case: retrying, there or elsewhere, does not help."""
    return UnknownArtifact("artifact", MISSING_BYTES)


def _parts(size: int) -> Iterable[tuple[int, int]]:
    """Yield the number and the size of each part of a blob of `size` bytes."""
    return (
        (number, min(PART_BYTES, size - start))
        for number, start in enumerate(range(0, size, PART_BYTES))
    )


def _folder(tenant_id: int) -> str:
    return f"artifacts/{tenant_id:010d}"


def _key(tenant_id: int, blob: int, number: int) -> str:
    return f"{_folder(tenant_id)}/{blob:019d}.{number:06d}"
