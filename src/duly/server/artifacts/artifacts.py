"""Takes in the artifacts of tenants, hands them out, and removes them.

The bytes come first and their row after them; on the way out it is the other way round. So
whoever finds a row finds its bytes, and what a crash leaves behind is bytes without a row,
which `curator.py` sweeps up.
"""

import hashlib
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from types import TracebackType
from typing import Self

from duly.config import RequestSettings
from duly.errors import (
    Conflict,
    DulyError,
    Fenced,
    Invalid,
    LimitExceeded,
    NotFound,
    TooLarge,
    Unavailable,
)
from duly.model.artifact import LEAST_BYTES
from duly.model.tenant import Credential, Plan
from duly.server.archive import FAILURES, PART, Archive, gone, lost
from duly.server.reports import is_possible
from duly.server.room import TenantRooms
from duly.server.sequencer import Sequencer
from duly.store import artifacts, audit_log, tenants
from duly.store.artifacts import Artifact, Blob
from duly.store.database import Database
from duly.store.lanes import Lane
from duly.wire import ArtifactPiece, ArtifactWanted

log = logging.getLogger(__name__)
UPLOADS = 4
"""Artifacts that one tenant may upload at once to one server: slow ones keep no others out."""

TOUCH_EVERY = timedelta(hours=1)
"""After how long it is noted once more that somebody asks for an artifact."""


class Artifacts:
    """The artifacts of all tenants."""

    def __init__(
        self,
        database: Database,
        settings: RequestSettings,
        sequencer: Sequencer,
        archive: Archive,
    ) -> None:
        self._database = database
        self._limit = settings.artifact_limit
        self._sequencer = sequencer
        self._archive = archive
        full = f"The tenant uploads {UPLOADS} artifacts here already; try again."
        self.uploads = TenantRooms(UPLOADS, full)

    async def begin(
        self, credential: Credential, sha256: bytes, announced: int | None
    ) -> "Upload | None":
        """Begin to take in an artifact; None when it is there already.

        `announced` is how many bytes it will have, if that is known.
        """
        tenant_id, plan = credential.tenant_id, credential.plan
        most = self._limit if plan.max_artifact_bytes is None else plan.max_artifact_bytes
        limit = min(self._limit, most)
        _check_size(announced or 0, limit)
        async with self._database.reading_for(tenant_id) as conn:
            found = await artifacts.find(conn, tenant_id, sha256)
            used = 0 if found is not None else await artifacts.count_bytes(conn, tenant_id)
        if found is None:
            check_total(plan, used, announced or 0)
        elif await self._is_there(tenant_id, found, timedelta()):
            return None
        self.uploads.enter(tenant_id)
        broken = None if found is None else found.blob
        return Upload(self, credential, sha256, self._sequencer.mint(), limit, broken)

    async def is_there(self, tenant_id: int, found: Artifact) -> bool:
        """Say whether an artifact need not be sent: all of it is here, and stays for a while."""
        return await self._is_there(tenant_id, found, TOUCH_EVERY)

    async def _is_there(self, tenant_id: int, found: Artifact, again: timedelta) -> bool:
        if not await self._archive.is_whole(_blob(tenant_id, found)):
            return False
        async with self._database.writing_for(tenant_id) as conn:
            return await artifacts.touch(conn, tenant_id, found.id, again=again)

    async def put(self, blob: Blob, number: int, data: bytes) -> None:
        """Keep a part of what is being uploaded."""
        await self._archive.put(blob.tenant_id, blob.id, number, data)

    async def store(
        self, credential: Credential, sha256: bytes, blob: Blob, broken: int | None
    ) -> bool:
        """Store an artifact whose bytes are there; False when it was stored before.

        `broken` is the name of bytes that are not whole, and in whose place these come.
        """
        try:
            old = await self._store(credential, sha256, blob, broken)
        except Unavailable:
            # Perhaps it is stored. If it is not, its bytes are swept up.
            raise
        except DulyError:
            await self.drop(blob)
            raise
        if old is not None:
            await self.drop(old)
        return old is None

    async def _store(
        self, credential: Credential, sha256: bytes, blob: Blob, broken: int | None
    ) -> Blob | None:
        """Store an artifact; return the bytes that are not needed, if it was there already."""
        tenant_id = credential.tenant_id
        async with self._database.writing_for(tenant_id) as conn:
            await tenants.hold(conn, tenant_id)
            await artifacts.lock_number(conn, tenant_id)
            found = await artifacts.find(conn, tenant_id, sha256)
            if found is not None and found.blob != broken:
                return blob
            if found is not None:
                await artifacts.move(conn, found.id, blob)
                return _blob(tenant_id, found)
            check_total(credential.plan, await artifacts.count_bytes(conn, tenant_id), blob.bytes)
            await artifacts.add(conn, tenant_id, sha256, blob)
        return None

    async def drop(self, blob: Blob) -> None:
        """Delete bytes that are nobody's; what cannot be deleted now is swept up."""
        try:
            await self._archive.drop(blob)
        except FAILURES as error:
            log.warning("cannot delete the bytes of an artifact", extra={"error": str(error)})

    async def open(self, tenant_id: int, artifact: Artifact) -> AsyncIterator[bytes]:
        """Return the bytes of an artifact; raises Unavailable when they are not all there."""
        blob = _blob(tenant_id, artifact)
        if not await self._archive.is_whole(blob):
            raise lost()
        return self._archive.read(blob)

    async def piece(self, node_id: int, asked: ArtifactWanted) -> ArtifactPiece:
        """Return the next bytes for an attempt; raises Fenced when it is not that node's now."""
        ref, found = asked.ref, None
        if is_possible(ref):
            async with self._database.connection(Lane.NODE) as conn:
                named = (ref.task, ref.attempt, ref.token)
                found = await artifacts.read_leased(conn, node_id, named)
        if found is None:
            raise Fenced("The attempt has been given away, or has no artifact to be shown here.")
        if found is artifacts.NONE:
            raise gone()
        data = await self._archive.piece(found, max(0, asked.offset))
        return ArtifactPiece(data=data, size=found.bytes)

    async def remove(self, credential: Credential, sha256: bytes) -> None:
        """Remove an artifact that nobody needs."""
        tenant_id = credential.tenant_id
        async with self._database.writing_for(tenant_id) as conn:
            found = await artifacts.lock(conn, tenant_id, sha256)
            if found is None:
                raise no_artifact(sha256)
            user = await artifacts.read_user(conn, found.id)
            if user is not None:
                kind = "schedule" if user.is_schedule else "task"
                raise Conflict(
                    f"The {kind} {user.id} needs the artifact; it can be removed after that.",
                    **{kind: str(user.id)},
                )
            await artifacts.remove(conn, found.id)
            await audit_log.record(
                conn,
                credential=credential,
                action="artifact.remove",
                target=sha256.hex(),
                tenant_id=tenant_id,
                details={"bytes": found.bytes},
            )
        await self.drop(_blob(tenant_id, found))


class Upload:
    """An artifact on its way in; unless it is sealed, it leaves nothing behind."""

    def __init__(
        self,
        owner: Artifacts,
        credential: Credential,
        sha256: bytes,
        blob: int,
        limit: int,
        broken: int | None,
    ) -> None:
        self._owner = owner
        self._credential = credential
        self._sha256 = sha256
        self._blob = blob
        self._limit = limit
        self._broken = broken
        self._hash = hashlib.sha256()
        self._part = bytearray()
        self._parts = 0
        self._size = 0
        self._is_kept = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._owner.uploads.leave(self._credential.tenant_id)
        if not self._is_kept:
            await self._owner.drop(self._whole)

    @property
    def _whole(self) -> Blob:
        return Blob(self._credential.tenant_id, self._blob, self._size)

    async def take(self, data: bytes) -> None:
        """Take in what comes next; raises TooLarge when it is too much."""
        _check_size(self._size + len(data), self._limit)
        self._size += len(data)
        self._hash.update(data)
        self._part += data
        while len(self._part) >= PART:
            await self._put(bytes(self._part[:PART]))
            del self._part[:PART]

    def seal(self) -> None:
        """Say that all of it has come; raises Invalid when these are not the bytes of the hash."""
        found = self._hash.hexdigest()
        if found != self._sha256.hex():
            raise Invalid("sha256", f"The bytes that came have another SHA-256: {found}.")
        # From here on it may be stored, even if nobody is told.
        self._is_kept = True

    async def finish(self) -> bool:
        """Store it, once it is sealed; False when somebody else has stored it meanwhile."""
        if self._part:
            try:
                await self._put(bytes(self._part))
            except Unavailable:
                await self._owner.drop(self._whole)
                raise
        return await self._owner.store(self._credential, self._sha256, self._whole, self._broken)

    async def _put(self, data: bytes) -> None:
        await self._owner.put(self._whole, self._parts, data)
        self._parts += 1


def check_total(plan: Plan, used: int, more: int) -> None:
    """Raise LimitExceeded when a tenant may not have so many bytes more."""
    most = plan.artifact_bytes
    if most is not None and used + max(more, LEAST_BYTES) > most:
        raise LimitExceeded(
            f"Limit exceeded: the plan {plan.name!r} keeps at most {most} bytes of artifacts, and "
            f"{used} are used. Remove some: DELETE /v1/artifacts/SHA256.",
            limit="artifact_bytes",
            used=used,
        )


def no_artifact(sha256: bytes) -> NotFound:
    """Return what is told of an artifact that is unknown, or another tenant's."""
    return NotFound(f"There is no artifact {sha256.hex()}.")


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(f"An artifact may have at most {limit} bytes.", limit=limit)


def _blob(tenant_id: int, artifact: Artifact) -> Blob:
    return Blob(tenant_id, artifact.blob, artifact.bytes)
