"""Keeps the bytes of artifacts, in the object store.

They lie in parts of a fixed size, `artifacts/<tenant>/<blob>.<number>`: a part is there as a
whole or not at all, whatever the store, and nobody ever holds more than one of them. Names are
given once, so what is deleted under one is never what somebody else has just put there.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

import obstore
from obstore.exceptions import BaseError

from duly.errors import Unavailable, UnknownArtifact
from duly.server.logbook import open_store
from duly.store.artifacts import Blob

PART = 4 * 2**20
"""Bytes of a part; the last one may have less. Never to be changed, because names tell no size."""
AT_ONCE = 32
"""Parts that are looked for at the same time; an object store far away takes its time."""
PIECE = 2**20
"""Bytes that a node is given at once."""
SIP = 2**18
"""Bytes that are read at once for a client. It is held, twice, for as long as that one takes."""
FAILURES = (BaseError, OSError)
"""What a store raises that cannot do what it is asked."""
LOST = "The bytes of the artifact are not in the object store; upload it again."


class Archive:
    """The bytes of all artifacts, in one object store."""

    def __init__(self, store_url: str) -> None:
        self._store = open_store(store_url)

    async def put(self, tenant_id: int, blob: int, number: int, data: bytes) -> None:
        """Keep a part; raises Unavailable when the store cannot take it."""
        try:
            await obstore.put_async(
                self._store, _key(tenant_id, blob, number), data, use_multipart=False
            )
        except FAILURES as error:
            raise Unavailable(
                "The object store cannot take the artifact now; nothing was kept."
            ) from error

    async def is_whole(self, blob: Blob) -> bool:
        """Say whether all parts are there, as large as they should be."""
        parts = list(_parts(blob.bytes))
        for first in range(0, len(parts), AT_ONCE):
            several = parts[first : first + AT_ONCE]
            sizes = await asyncio.gather(*(self._size(blob, number) for number, _ in several))
            if sizes != [size for _, size in several]:
                return False
        return True

    async def _size(self, blob: Blob, number: int) -> int | None:
        try:
            found = await obstore.head_async(self._store, _key(blob.tenant_id, blob.id, number))
        except FileNotFoundError:
            return None
        except FAILURES as error:
            raise Unavailable("The object store cannot be read now.") from error
        size: int = found["size"]
        return size

    async def read(self, blob: Blob) -> AsyncIterator[bytes]:
        """Yield the bytes of a blob, a sip at a time."""
        for number, size in _parts(blob.bytes):
            key = _key(blob.tenant_id, blob.id, number)
            for start in range(0, size, SIP):
                end = min(start + SIP, size)
                yield bytes(await obstore.get_range_async(self._store, key, start=start, end=end))

    async def piece(self, blob: Blob, offset: int) -> bytes:
        """Return bytes from `offset` on, within their part; none when there are no more.

        Not all of the part: when a thousand nodes begin at once, each waits for a piece.
        """
        if offset >= blob.bytes:
            return b""
        number, start = divmod(offset, PART)
        end = min(start + PIECE, PART, blob.bytes - number * PART)
        key = _key(blob.tenant_id, blob.id, number)
        try:
            data = await obstore.get_range_async(self._store, key, start=start, end=end)
        except FileNotFoundError as error:
            raise gone() from error
        except FAILURES as error:
            raise Unavailable("The object store cannot be read now.") from error
        return bytes(data)

    async def drop(self, blob: Blob) -> None:
        """Delete the bytes of a blob, as far as they are there."""
        await self._delete(
            _key(blob.tenant_id, blob.id, number) for number, _ in _parts(blob.bytes)
        )

    async def tenants(self) -> list[int]:
        """Return the tenants that have bytes here."""
        listing = await obstore.list_with_delimiter_async(self._store, "artifacts")
        names = [prefix.rstrip("/").rpartition("/")[2] for prefix in listing["common_prefixes"]]
        return sorted(int(name) for name in names if name.isdigit())

    async def blobs(self, tenant_id: int) -> AsyncIterator[dict[int, list[str]]]:
        """Yield the names of a tenant's blobs with the keys of their parts, some at a time."""
        async for batch in obstore.list(self._store, _folder(tenant_id), chunk_size=1000):
            found: dict[int, list[str]] = {}
            for meta in batch:
                name = meta["path"].rpartition("/")[2].partition(".")[0]
                if name.isdigit():
                    found.setdefault(int(name), []).append(meta["path"])
            yield found

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete parts by the keys that `blobs` gave."""
        await self._delete(keys)

    async def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            try:
                await obstore.delete_async(self._store, key)
            except FileNotFoundError:
                continue
            await asyncio.sleep(0)


def lost() -> Unavailable:
    """Return what is told when bytes are gone that should be there."""
    return Unavailable(LOST)


def gone() -> UnknownArtifact:
    """Return what a node is told then: trying again is of no use, there or elsewhere."""
    return UnknownArtifact("artifact", LOST)


def _parts(size: int) -> Iterable[tuple[int, int]]:
    """Yield the number and the size of each part of so many bytes."""
    return ((number, min(PART, size - start)) for number, start in enumerate(range(0, size, PART)))


def _folder(tenant_id: int) -> str:
    return f"artifacts/{tenant_id:010d}"


def _key(tenant_id: int, blob: int, number: int) -> str:
    return f"{_folder(tenant_id)}/{blob:019d}.{number:06d}"
