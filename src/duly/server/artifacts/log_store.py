"""Stores the logs of attempts, beyond the tail that is part of a report.

An attempt's log is a sequence of chunks in the object store, each named by the offset at which
it begins: `logs/<day>/<task>/<attempt>/<offset>`. A chunk that is sent again overwrites itself,
so appending is idempotent. The day is that of the task's id, as in the database, so that logs
are dropped with their day of history.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import obstore

from duly.errors import TooLarge, Unavailable
from duly.server.artifacts.store_access import STORE_ERRORS, first_line, open_store
from duly.server.artifacts.store_guard import StoreGuard
from duly.wire import AttemptRef

log = logging.getLogger(__name__)
NOTICE_BYTES = 4096
"""Room beyond the limit of a log for the notice that the rest was cut off."""
LOST_NOTICE = b"\n[duly: the node was lost; what was written after this was lost with it]\n"
"""Appended to the part of a log that had been received when its node was lost."""
MAX_CONCURRENT_DELETES = 32
"""Tasks whose logs are deleted concurrently, as a remote object store has a high latency."""
SECONDS_PER_DAY = 86_400
ID_BITS_BELOW_SECOND = 31


class Chunk(msgspec.Struct, frozen=True, order=True):
    """A contiguous part of a log in the object store."""

    offset: int
    size: int
    key: str

    @property
    def end(self) -> int:
        """Return the offset of the first byte after it."""
        return self.offset + self.size


class LogStore:
    """The logs of all attempts, in one object store."""

    def __init__(self, store_url: str, guard: StoreGuard, *, limit: int) -> None:
        self._store = open_store(store_url)
        self._guard = guard
        self._limit = limit

    async def append(self, ref: AttemptRef, offset: int, data: bytes) -> None:
        """Store `data` as the bytes of an attempt's log from `offset` on.

        The caller has checked that the sender still holds the attempt.
        """
        if offset < 0 or offset + len(data) > self._limit + NOTICE_BYTES:
            raise TooLarge(f"A log may have at most {self._limit} bytes.", limit=self._limit)
        if data:
            await self._guard.confirm()
            with _unavailable_if_failing("written to"):
                await obstore.put_async(
                    self._store, f"{_prefix(ref.task, ref.attempt)}/{offset:012d}", data
                )

    async def check_readable(self, task: int, attempt: int) -> None:
        """Raise Unavailable if the log of an attempt cannot be read now."""
        for chunk in (await self._chunks(task, attempt))[:1]:
            await self._get(chunk, 0, min(chunk.size, 1))

    async def read(self, task: int, attempt: int, start: int = 0) -> AsyncIterator[bytes]:
        """Yield the stored bytes of a log from `start` on, up to the first gap."""
        position = start
        for chunk in await self._chunks(task, attempt):
            if chunk.end <= position:
                continue
            if chunk.offset > position:
                return
            data = await self._get(chunk, position - chunk.offset, chunk.size)
            if not data:
                # Dropped since it was listed, together with the rest of the log.
                return
            position += len(data)
            yield data

    async def read_ended(
        self, task: int, attempt: int, *, size: int, tail: bytes, start: int = 0
    ) -> AsyncIterator[bytes]:
        """Yield the log of an attempt that has ended: `tail` is the last part of its `size`.

        A notice says how many bytes are missing if chunks never arrived.
        """
        position = start
        begins = size - len(tail)
        if position < begins:
            async for data in self.read(task, attempt, start):
                yield data
                position += len(data)
        if position < begins:
            yield f"\n[… {begins - position} bytes were not kept …]\n".encode()
            position = begins
        if position < size:
            yield tail[position - begins :]

    async def read_lost(self, task: int, attempt: int, start: int = 0) -> AsyncIterator[bytes]:
        """Yield the received log of an attempt that was lost with its node, and a notice.

        The notice counts as the last bytes of the log, so that a follower reads it once.
        """
        received = _end_without_gap(await self._chunks(task, attempt))
        if start < received:
            async for data in self.read(task, attempt, start):
                yield data
        if start < received + len(LOST_NOTICE):
            yield LOST_NOTICE[max(start - received, 0) :]

    async def drop_before(self, day: int, *, keep: Collection[int] = ()) -> None:
        """Delete the logs of tasks from before `day`, except those of the tasks in `keep`."""
        await self._guard.confirm()
        listing = await obstore.list_with_delimiter_async(self._store, "logs")
        for prefix in listing["common_prefixes"]:
            name = prefix.rstrip("/").rpartition("/")[2]
            if name.isdigit() and int(name) < day:
                await self._drop(prefix, keep)

    async def drop(self, tasks: Sequence[int]) -> None:
        """Delete the logs of tasks, several concurrently."""
        await self._guard.confirm()
        for first in range(0, len(tasks), MAX_CONCURRENT_DELETES):
            async with asyncio.TaskGroup() as group:
                for task in tasks[first : first + MAX_CONCURRENT_DELETES]:
                    group.create_task(self._drop(f"logs/{day_of(task):06d}/{task:019d}", ()))

    async def _drop(self, prefix: str, keep: Collection[int]) -> None:
        async for batch in obstore.list(self._store, prefix, chunk_size=1000):
            keys = [meta["path"] for meta in batch]
            await obstore.delete_async(
                self._store, [key for key in keys if int(key.split("/")[2]) not in keep]
            )

    async def _chunks(self, task: int, attempt: int) -> list[Chunk]:
        """Return the chunks of a log; raises Unavailable if there are none as the store is gone."""
        chunks = []
        with _unavailable_if_failing("read from"):
            async for batch in obstore.list(self._store, _prefix(task, attempt), chunk_size=1000):
                for meta in batch:
                    name = meta["path"].rpartition("/")[2]
                    if name.isdigit():
                        chunks.append(Chunk(int(name), meta["size"], meta["path"]))
        if not chunks:
            await self._guard.confirm()
        return sorted(chunks)

    async def _get(self, chunk: Chunk, start: int, end: int) -> bytes:
        """Return the bytes of a chunk from `start` to `end`; none if it is gone."""
        if start >= end:
            return b""
        with _unavailable_if_failing("read from"):
            try:
                return bytes(
                    await obstore.get_range_async(self._store, chunk.key, start=start, end=end)
                )
            except FileNotFoundError:
                return b""


@contextmanager
def _unavailable_if_failing(access: str) -> Iterator[None]:
    """Log a failure of the object store in one line, and raise Unavailable instead."""
    try:
        yield
    except STORE_ERRORS as error:
        reason = first_line(error)
        log.warning("a log cannot be %s the object store", access, extra={"error": reason})
        raise Unavailable(f"The log cannot be {access} the object store: {reason}.") from error


def day_of(task: int) -> int:
    """Return the day, counted from 2026-01-01, on which a task's id was minted."""
    return (task >> ID_BITS_BELOW_SECOND) // SECONDS_PER_DAY


def _end_without_gap(chunks: Sequence[Chunk]) -> int:
    """Return the offset up to which ordered chunks have no gap."""
    position = 0
    for chunk in chunks:
        if chunk.offset > position:
            break
        position = max(position, chunk.end)
    return position


def _prefix(task: int, attempt: int) -> str:
    return f"logs/{day_of(task):06d}/{task:019d}/{attempt:06d}"
