"""A fetcher of bundles at work, for tests, and a server that gives it what they prepare."""

import asyncio
import hashlib
from contextlib import asynccontextmanager

from duly import wire
from duly.agent.gateway import Gateway
from duly.agent.preparation.bundle_cache import BundleCache
from duly.agent.preparation.bundles import BundleFetcher
from duly.agent.preparation.task_users import SameUser
from duly.model.resources import Resources
from duly.model.task import Payload
from duly.wire import ArtifactChunk, ArtifactRequest, Assignment, AttemptRef
from tests.agent.preparation.test_unpack import entry, tar

A, B, C = AttemptRef(7, 1, 40), AttemptRef(8, 1, 41), AttemptRef(9, 1, 42)
JOB = tar(entry("run.sh", b"#!/bin/sh\n", mode=0o755), entry("data/x", b"hello"))
OTHER = tar(entry("other", b"1"))


def name_of(data):
    return hashlib.sha256(data).hexdigest()


class Counted(SameUser):
    """Users of whom it is known how many are taken."""

    taken = 0

    def take(self):
        self.taken += 1
        return super().take()

    def release(self, user):
        self.taken -= 1


class Bundling:
    """A fetcher at work, and what it has said and removed."""

    def __init__(self, folder, most_bytes):
        self.folder = folder
        self.users = Counted(None)
        self.cache = BundleCache(folder / "cache", most_bytes)
        self.said = asyncio.Queue()
        self.removed = []
        self.fetcher = None

    def want(self, ref, data=JOB, *, tenant=3, disk_mb=0, name=None):
        payload = Payload(command=["true"], artifact=name or name_of(data))
        self.fetcher.fetch(assignment(ref, payload, tenant, disk_mb), str(self.at(ref)))

    def at(self, ref):
        return self.folder / str(ref.task)

    async def end(self):
        """Return the next attempt that may begin, or what it ends as."""
        async with asyncio.timeout(20):
            assigned, refusal = await self.said.get()
            return assigned.ref, refusal

    async def fails(self):
        """Return why the next attempt ends, having seen that nothing is left of it."""
        ref, refusal = await self.end()
        assert not self.at(ref).exists()
        assert self.users.taken == 0
        return refusal.outcome, refusal.reason.code, refusal.reason.message

    def kept(self):
        return sorted(str(path.relative_to(self.folder / "cache")) for path in self._files())

    def _files(self):
        return (path for path in (self.folder / "cache").rglob("*") if path.is_file())


def assignment(ref, payload, tenant, disk_mb):
    return Assignment(
        ref=ref,
        payload=payload,
        resources=Resources(disk_mb=disk_mb),
        execution_cap=1.0,
        grace=1.0,
        idempotency_key="k",
        log_limit=1,
        result_limit=1,
        tenant=tenant,
    )


@asynccontextmanager
async def bundling(server, folder, most_bytes=10**6, unpackers=1):
    async with Gateway([server.url]) as line, asyncio.TaskGroup() as group:
        line.key = "node"
        told = Bundling(folder, most_bytes)
        told.fetcher = BundleFetcher(
            line,
            told.cache,
            told.users,
            lambda *said: told.said.put_nowait(said),
            told.removed.append,
        )
        loops = [told.fetcher.run(), *(told.fetcher.unpack() for _ in range(unpackers))]
        loops = [group.create_task(loop) for loop in loops]
        yield told
        for loop in loops:
            loop.cancel()


def give(server, data, *cuts, size=None):
    """Prepare an artifact, in pieces."""
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        piece = ArtifactChunk(data=data[start:end], size=len(data) if size is None else size)
        server.prepare(200, wire.encode(piece))


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


def asked(server):
    """Return which pieces were asked for."""
    assert {path for path, _, _ in server.seen} <= {"/v1/gateway/artifact"}
    found = [wire.decode(body, ArtifactRequest) for _, _, body in server.seen]
    return [(one.ref, one.offset) for one in found]
