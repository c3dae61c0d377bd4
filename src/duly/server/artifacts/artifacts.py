"""Uploads, downloads and removes the artifacts of tenants.

An upload stores the bytes before their row; a removal deletes the row before the bytes. So a row
always has its bytes, and a crash can only leave bytes without a row, which `artifact_gc.py`
deletes.

Decision: docs/adr/0025-artifacts-and-bundles.md.
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
from duly.model.artifact import MIN_ACCOUNTED_BYTES
from duly.model.tenant import Credential, Plan
from duly.model.wording import format_bytes
from duly.server.artifacts.object_store import (
    PART_BYTES,
    ObjectStore,
    artifact_gone,
    bytes_missing,
)
from duly.server.artifacts.store_access import STORE_ERRORS, first_line
from duly.server.capacity_limiter import TenantCapacityLimiters
from duly.server.delivery.report_sanitizer import is_valid_ref
from duly.server.sequencer import Sequencer
from duly.store.accounts import audit_log, tenants
from duly.store.connections.connection_classes import ConnectionClass
from duly.store.database import Database
from duly.store.tasks import artifacts
from duly.store.tasks.artifacts import Artifact, Blob
from duly.wire import ArtifactChunk, ArtifactRequest

log = logging.getLogger(__name__)
MAX_CONCURRENT_UPLOADS = 4
"""Concurrent uploads of one tenant to one server, so that slow ones do not starve other tenants."""

TOUCH_INTERVAL = timedelta(hours=1)
"""How often at most the last use of an artifact is updated when a client asks for it."""


class Artifacts:
    """The artifacts of all tenants."""

    def __init__(
        self,
        database: Database,
        settings: RequestSettings,
        sequencer: Sequencer,
        object_store: ObjectStore,
    ) -> None:
        self._database = database
        self._limit = settings.artifact_limit
        self._sequencer = sequencer
        self._object_store = object_store
        full = f"The tenant is already uploading {MAX_CONCURRENT_UPLOADS} artifacts; try again."
        self.uploads = TenantCapacityLimiters(MAX_CONCURRENT_UPLOADS, full)

    async def begin(
        self, credential: Credential, sha256: bytes, announced: int | None
    ) -> "Upload | None":
        """Begin an upload; None when the artifact is stored already.

        `announced` is the size in bytes, if the client has sent it.
        """
        tenant_id, plan = credential.tenant_id, credential.plan
        plan_limit = self._limit if plan.max_artifact_bytes is None else plan.max_artifact_bytes
        limit = min(self._limit, plan_limit)
        _check_size(announced or 0, limit)
        async with self._database.reading_for(tenant_id) as conn:
            artifact = await artifacts.find(conn, tenant_id, sha256)
            used = 0 if artifact is not None else await artifacts.count_bytes(conn, tenant_id)
        if artifact is None:
            check_total(plan, used, announced or 0)
        elif await self._is_stored(tenant_id, artifact, timedelta()):
            return None
        self.uploads.acquire(tenant_id)
        broken = None if artifact is None else artifact.blob
        return Upload(self, credential, sha256, self._sequencer.mint(), limit, broken)

    async def is_stored(self, tenant_id: int, artifact: Artifact) -> bool:
        """Return True if the artifact need not be sent: it is complete, and kept for a while."""
        return await self._is_stored(tenant_id, artifact, TOUCH_INTERVAL)

    async def _is_stored(self, tenant_id: int, artifact: Artifact, again: timedelta) -> bool:
        if not await self._object_store.is_whole(_blob(tenant_id, artifact)):
            return False
        async with self._database.writing_for(tenant_id) as conn:
            return await artifacts.touch(conn, tenant_id, artifact.id, again=again)

    async def put(self, blob: Blob, number: int, data: bytes) -> None:
        """Store one part of an upload."""
        await self._object_store.put(blob.tenant_id, blob.id, number, data)

    async def store(
        self, credential: Credential, sha256: bytes, blob: Blob, broken: int | None
    ) -> bool:
        """Store the row of an artifact whose bytes are stored; False when it was there before.

        `broken` is the blob with missing bytes that this one replaces.
        """
        try:
            old = await self._store(credential, sha256, blob, broken)
        except Unavailable:
            # The commit may have succeeded. If not, the sweep deletes the bytes.
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
        """Store the row; return the superfluous blob if the artifact was there already."""
        tenant_id = credential.tenant_id
        async with self._database.writing_for(tenant_id) as conn:
            await tenants.hold(conn, tenant_id)
            await artifacts.lock_uploads(conn, tenant_id)
            artifact = await artifacts.find(conn, tenant_id, sha256)
            if artifact is not None and artifact.blob != broken:
                return blob
            if artifact is not None:
                await artifacts.move(conn, artifact.id, blob)
                return _blob(tenant_id, artifact)
            check_total(credential.plan, await artifacts.count_bytes(conn, tenant_id), blob.bytes)
            await artifacts.add(conn, tenant_id, sha256, blob)
        return None

    async def drop(self, blob: Blob) -> None:
        """Delete bytes without a row; if that fails, the sweep deletes them."""
        try:
            await self._object_store.drop(blob)
        except STORE_ERRORS as error:
            log.warning(
                "cannot delete the bytes of an artifact", extra={"error": first_line(error)}
            )

    async def open(self, tenant_id: int, artifact: Artifact) -> AsyncIterator[bytes]:
        """Return the bytes of an artifact; raises Unavailable when some are missing."""
        blob = _blob(tenant_id, artifact)
        if not await self._object_store.is_whole(blob):
            raise bytes_missing()
        return self._object_store.read(blob)

    async def read_piece(self, node_id: int, request: ArtifactRequest) -> ArtifactChunk:
        """Return the next bytes for an attempt; raises Fenced when the node does not hold it."""
        ref, blob = request.ref, None
        if is_valid_ref(ref):
            async with self._database.connection(ConnectionClass.NODE) as conn:
                key = (ref.task, ref.attempt, ref.token)
                blob = await artifacts.read_leased(conn, node_id, key)
        if blob is None:
            raise Fenced("The attempt is not leased to this node, or its task has no artifact.")
        if blob is artifacts.MISSING_BLOB:
            raise artifact_gone()
        data = await self._object_store.piece(blob, max(0, request.offset))
        return ArtifactChunk(data=data, size=blob.bytes)

    async def remove(self, credential: Credential, sha256: bytes) -> None:
        """Remove an unused artifact."""
        tenant_id = credential.tenant_id
        async with self._database.writing_for(tenant_id) as conn:
            artifact = await artifacts.lock(conn, tenant_id, sha256)
            if artifact is None:
                raise artifact_not_found(sha256)
            user = await artifacts.read_user(conn, artifact.id)
            if user is not None:
                kind = "schedule" if user.is_schedule else "task"
                raise Conflict(
                    f"The {kind} {user.id} uses the artifact; it can be removed after that.",
                    **{kind: str(user.id)},
                )
            await artifacts.remove(conn, artifact.id)
            await audit_log.record(
                conn,
                credential=credential,
                action="artifact.remove",
                target=sha256.hex(),
                tenant_id=tenant_id,
                details={"bytes": artifact.bytes},
            )
        await self.drop(_blob(tenant_id, artifact))


class Upload:
    """An upload in progress; unless its hash is verified, its bytes are deleted at the end."""

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
        self._is_verified = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._owner.uploads.release(self._credential.tenant_id)
        if not self._is_verified:
            await self._owner.drop(self._whole)

    @property
    def _whole(self) -> Blob:
        return Blob(self._credential.tenant_id, self._blob, self._size)

    async def write(self, data: bytes) -> None:
        """Append data; raises TooLarge beyond the limit."""
        _check_size(self._size + len(data), self._limit)
        self._size += len(data)
        self._hash.update(data)
        self._part += data
        while len(self._part) >= PART_BYTES:
            await self._put(bytes(self._part[:PART_BYTES]))
            del self._part[:PART_BYTES]

    def verify(self) -> None:
        """Check the hash after the last byte; raises Invalid when it differs."""
        actual = self._hash.hexdigest()
        if actual != self._sha256.hex():
            raise Invalid(
                "sha256", f"the uploaded bytes have another SHA-256, {actual}. Upload them again."
            )
        # From here on the row may be committed even if the request is cancelled.
        self._is_verified = True

    async def finish(self) -> bool:
        """Store the verified artifact; False when another upload has stored it meanwhile."""
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
    """Raise LimitExceeded when the plan does not allow `more` bytes of artifacts."""
    limit = plan.artifact_bytes
    if limit is not None and used + max(more, MIN_ACCOUNTED_BYTES) > limit:
        raise LimitExceeded(
            f"Limit exceeded: the plan {plan.name!r} allows {limit} bytes of artifacts, and "
            f"{used} are used. Remove some: DELETE /v1/artifacts/SHA256.",
            limit="artifact_bytes",
            used=used,
        )


def artifact_not_found(sha256: bytes) -> NotFound:
    """Return the error for an artifact that does not exist, or is another tenant's."""
    return NotFound(f"There is no artifact {sha256.hex()!r}.", kind="artifact")


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(
            f"The artifact has more than {format_bytes(limit)}, which is the limit.", limit=limit
        )


def _blob(tenant_id: int, artifact: Artifact) -> Blob:
    return Blob(tenant_id, artifact.blob, artifact.bytes)
