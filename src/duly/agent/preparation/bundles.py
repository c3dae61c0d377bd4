"""Fetches the bundle of an attempt and unpacks it before the attempt begins.

A bundle that several attempts wait for is downloaded once. Chunks are fetched round-robin by
tenant, and by bundle within a tenant, so that neither a large bundle nor a tenant with many bundles
delays the others. Downloaded bundles are cached (`bundle_cache.py`). Every attempt has its own
folder and user, so each unpacks its own copy, in a thread, also round-robin by tenant.

Decision: docs/adr/0025-artifacts-and-bundles.md.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from duly import timers
from duly.agent.gateway import Backoff, Gateway
from duly.agent.preparation.bundle_cache import BundleCache, PartialBundle
from duly.agent.preparation.task_users import User, Users
from duly.agent.preparation.tenant_queue import TenantQueue
from duly.agent.preparation.unpack import Abandoned, Damaged, unpack
from duly.agent.supervision.outcome import NEVER_BEGUN, Conclusion
from duly.clock import monotonic
from duly.errors import DulyError, Fenced, Invalid, NotFound, Unauthenticated, Unavailable
from duly.model.archives.bundle import MAX_UNPACKED_BYTES
from duly.model.archives.tar import UnpackedTooLarge
from duly.model.task import Outcome, Reason
from duly.wire import ArtifactChunk, ArtifactRequest, Assignment, AttemptRef

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS = 60.0
STALL_TIMEOUT_SECONDS = 60.0
"""Seconds without a chunk after which an attempt goes back to its queue: another node may do
better."""
MAX_FETCH_SECONDS = 1800.0
"""Seconds after which an attempt without its bundle ends, even if chunks still arrive."""
MAX_DAMAGED_COPIES = 3
"""After this many the disk is to blame, and another node may do better."""
MAX_CONCURRENT_UNPACKS = 3
"""Bundles that are unpacked at the same time."""
MAX_UNPACKS_PER_TENANT = MAX_CONCURRENT_UNPACKS - 1
"""Keeps a worker free for other tenants, however long the bundles of a single tenant take."""
TOO_SLOW = f"it was not here within {MAX_FETCH_SECONDS / 60:.0f} minutes."
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
WRONG_HASH = "what came has another hash than it should."
OnReady = Callable[[Assignment, Conclusion | None], None]


@dataclass(slots=True, eq=False)
class BundleRequest:
    """An attempt that waits for its bundle, and its folder once that has been made."""

    assignment: Assignment
    tenant: int
    folder: str
    file: Path
    since: float = field(default_factory=monotonic)
    user: User | None = None
    damaged: int = 0
    """How many cached copies of its bundle were missing or had the wrong hash."""
    is_unpacked: bool = False
    is_unwanted: bool = False
    has_made_room: bool = False

    @property
    def sha256(self) -> str:
        """Return the hash of its bundle, which is the name of the cached file."""
        return self.file.name


@dataclass(slots=True)
class BundleDownload:
    """A bundle that is being downloaded, and the requests that wait for it."""

    tenant: int
    arrival: PartialBundle
    last_at: float
    next_at: float = 0.0
    """When to request the next chunk."""
    seconds: float = 0.0
    """Time spent on its own chunks, without the turns of other bundles."""
    backoff: Backoff = field(default_factory=Backoff)
    has_made_room: bool = False
    waiting: list[BundleRequest] = field(default_factory=list)


class BundleFetcher:
    """The attempts that wait for their bundles, or have them and wait to be started."""

    def __init__(
        self,
        gateway: Gateway,
        cache: BundleCache,
        users: Users,
        done: OnReady,
        remove: Callable[[str], None],
    ) -> None:
        self._gateway = gateway
        self._cache = cache
        self._users = users
        self._done = done
        self._remove = remove
        self._wanted: dict[AttemptRef, BundleRequest] = {}
        self._fetching: dict[Path, BundleDownload] = {}
        self._arrived: TenantQueue[BundleRequest] = TenantQueue(MAX_UNPACKS_PER_TENANT)
        self._nudged = asyncio.Event()
        self._fits = True

    def fetch(self, assignment: Assignment, folder: str) -> None:
        """Fetch the bundle of an attempt, unpack it into `folder`, then call `done`."""
        sha256, tenant = assignment.payload.artifact or "", assignment.tenant
        if tenant is None:
            # The cache is per tenant: a bundle must never reach another tenant.
            self._done(assignment, unavailable(Outcome.FAILED, "its server is too old."))
            return
        try:
            file = self._cache.path_of(tenant, sha256)
        except Invalid as error:
            self._done(assignment, unavailable(Outcome.FAILED, error.message))
            return
        wanted = self._wanted[assignment.ref] = BundleRequest(assignment, tenant, folder, file)
        if file in self._fetching or not self._cache.use(file):
            self._await(wanted)
        else:
            self._arrived.put(wanted.tenant, wanted)

    def take(self, ref: AttemptRef) -> BundleRequest | None:
        """Remove and return the request of an attempt that begins now; None without a bundle."""
        return self._wanted.pop(ref, None)

    def abandon(self, ref: AttemptRef) -> None:
        """Stop preparing an attempt, and remove its folder even if it is complete."""
        wanted = self._wanted.pop(ref, None)
        if wanted is None:
            return
        wanted.is_unwanted = True
        fetching = self._fetching.get(wanted.file)
        if fetching is not None and wanted in fetching.waiting:
            fetching.waiting.remove(wanted)
        if wanted.is_unpacked:
            self._remove(wanted.folder)
            self._users.release(wanted.user)

    def _await(self, wanted: BundleRequest) -> None:
        fetching = self._fetching.get(wanted.file)
        if fetching is None:
            fetching = BundleDownload(wanted.tenant, PartialBundle(wanted.file), monotonic())
            self._fetching[wanted.file] = fetching
        fetching.waiting.append(wanted)
        self._nudged.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            await self._wait()
            served: set[int] = set()
            for file, fetching in list(self._fetching.items()):
                self._end_late(fetching)
                if not fetching.waiting:
                    del self._fetching[file]
                    await asyncio.to_thread(fetching.arrival.drop)
                elif fetching.tenant not in served and fetching.next_at <= monotonic():
                    served.add(fetching.tenant)
                    # Move to the end: the tenant's other bundles come first next time.
                    self._fetching[file] = self._fetching.pop(file)
                    await self._try(fetching)

    async def _wait(self) -> None:
        """Wait until a chunk may be requested."""
        self._nudged.clear()
        next_at = min((fetch.next_at for fetch in self._fetching.values()), default=None)
        pause = None if next_at is None else next_at - monotonic()
        if pause is not None and pause <= 0:
            return
        await timers.wait_for(self._nudged, pause)

    async def _try(self, fetching: BundleDownload) -> None:
        """Fetch a chunk; after an error only this bundle backs off."""
        began = monotonic()
        try:
            await self._fetch_piece(fetching)
            fetching.backoff.reset()
        except (Unavailable, NotFound) as error:
            # NotFound: this server is older than the route; another server may have it.
            log.warning("cannot fetch a bundle", extra={"error": error.message})
            fetching.next_at = monotonic() + fetching.backoff.next()
            self._lose_patience(fetching, error)
        finally:
            fetching.seconds += monotonic() - began

    async def _fetch_piece(self, fetching: BundleDownload) -> None:
        asking, arrival = fetching.waiting[0], fetching.arrival
        asked = ArtifactRequest(ref=asking.assignment.ref, offset=arrival.size)
        try:
            piece = await self._gateway.call(
                "artifact", asked, ArtifactChunk, timeout=REQUEST_TIMEOUT_SECONDS
            )
            is_whole = await asyncio.to_thread(append_piece, arrival, piece)
        except (Unavailable, NotFound, Unauthenticated):
            raise
        except Fenced:
            # The attempt is no longer ours. Other waiting attempts request the next chunk.
            self._end(asking, NEVER_BEGUN)
        except DulyError as error:
            self._end(asking, unavailable(Outcome.FAILED, error.message))
        except Damaged:
            self._end_all(fetching, unavailable(Outcome.FAILED, WRONG_HASH))
        except OSError as error:
            if await self._make_room(fetching, error):
                await asyncio.to_thread(arrival.drop)
            else:
                self._end_all(fetching, unavailable(Outcome.FAILED, f"{error.strerror or error}."))
        else:
            fetching.last_at = monotonic()
            if is_whole:
                del self._fetching[arrival.target]
                for wanted in fetching.waiting:
                    self._arrived.put(wanted.tenant, wanted)
                await self._trim()

    async def _trim(self) -> None:
        self._fits = await asyncio.to_thread(self._cache.trim, self._is_needed)

    async def _make_room(self, stopped: BundleDownload | BundleRequest, error: OSError) -> bool:
        """Empty the cache if the disk is full; False if that was already done for `stopped`."""
        if stopped.has_made_room or error.errno not in DISK_FULL_ERRORS:
            return False
        stopped.has_made_room = True
        log.warning("the disk is full; no bundles are kept for later")
        await asyncio.to_thread(self._cache.trim, self._is_needed, 0)
        return True

    def _is_needed(self, file: Path) -> bool:
        # Called from another thread, so iterate over a copy: attempts come and go.
        wanted = list(self._wanted.values())
        return any(bundle.file == file and not bundle.is_unpacked for bundle in wanted)

    def _end_late(self, fetching: BundleDownload) -> None:
        """End requests that have waited too long: they hold space, and delay other downloads.

        The attempt fails if its own chunks took most of the time. If other bundles had most of the
        turns, the attempt is not at fault and goes back to its queue.
        """
        outcome = Outcome.FAILED if fetching.seconds > MAX_FETCH_SECONDS / 2 else Outcome.EXPIRED
        for wanted in list(fetching.waiting):
            if monotonic() - wanted.since > MAX_FETCH_SECONDS:
                self._end(wanted, unavailable(outcome, TOO_SLOW))

    def _lose_patience(self, fetching: BundleDownload, error: DulyError) -> None:
        if monotonic() - fetching.last_at > STALL_TIMEOUT_SECONDS:
            self._end_all(fetching, unavailable(Outcome.EXPIRED, error.message))

    async def unpack(self) -> None:
        """Unpack downloaded bundles, one after the other, until cancelled."""
        while True:
            tenant = await self._arrived.next_tenant()
            with self._arrived.take(tenant) as wanted:
                if not wanted.is_unwanted:
                    await self._unpack_or_end(wanted)
                    if not self._fits:
                        await self._trim()

    async def _unpack_or_end(self, wanted: BundleRequest) -> None:
        try:
            await self._unpack(wanted)
        except Abandoned:
            pass
        except Damaged:
            self._fetch_again(wanted)
        except UnpackedTooLarge as error:
            self._end(wanted, too_large(error, limit_of(wanted.assignment)))
        except Invalid as error:
            self._end(wanted, invalid(error.problem))
        except OSError as error:
            if await self._make_room(wanted, error):
                self._arrived.put(wanted.tenant, wanted)
            else:
                self._end(wanted, unavailable(Outcome.FAILED, f"{error.strerror or error}."))
        except Exception as error:
            # A broken bundle must not affect the other attempts on this node.
            log.exception("cannot unpack a bundle")
            self._end(wanted, invalid(f"{type(error).__name__} on its node."))
        else:
            if not wanted.is_unwanted:
                self._done(wanted.assignment, None)

    def _fetch_again(self, wanted: BundleRequest) -> None:
        log.warning("a bundle that was kept is gone or damaged")
        self._cache.remove(wanted.file)
        wanted.damaged += 1
        if wanted.damaged >= MAX_DAMAGED_COPIES:
            self._end(wanted, unavailable(Outcome.FAILED, WRONG_HASH))
        elif not wanted.is_unwanted:
            self._await(wanted)

    async def _unpack(self, wanted: BundleRequest) -> None:
        """Unpack in a thread: the disk may be slow, and the files many."""
        wanted.user = self._users.take()
        work = asyncio.ensure_future(
            asyncio.to_thread(
                unpack,
                wanted.file,
                wanted.sha256,
                wanted.folder,
                wanted.user,
                most_bytes=limit_of(wanted.assignment),
                is_unwanted=lambda: wanted.is_unwanted,
            )
        )
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            wanted.is_unwanted = True
            await asyncio.wait([work])
            raise
        finally:
            if work.exception() is not None:
                self._users.release(wanted.user)
            elif wanted.is_unwanted:
                self._remove(wanted.folder)
                self._users.release(wanted.user)
            else:
                wanted.is_unpacked = True

    def _end_all(self, fetching: BundleDownload, refusal: Conclusion) -> None:
        for wanted in list(fetching.waiting):
            self._end(wanted, refusal)

    def _end(self, wanted: BundleRequest, refusal: Conclusion) -> None:
        """Stop preparing an attempt, and report why it cannot begin."""
        if not wanted.is_unwanted:
            self.abandon(wanted.assignment.ref)
            self._done(wanted.assignment, refusal)


def append_piece(arrival: PartialBundle, piece: ArtifactChunk) -> bool:
    """Append a chunk and return whether it was the last; raises Damaged if the hash is wrong."""
    arrival.add(piece.data)
    if arrival.size < piece.size:
        if not piece.data:
            raise Unavailable("A server sent nothing, although there is more.")
        return False
    if not arrival.keep():
        raise Damaged
    return True


def limit_of(assignment: Assignment) -> int:
    """Return the size limit in bytes of an unpacked bundle: the disk space of the task."""
    disk = assignment.resources.disk_mb * 2**20
    return min(disk, MAX_UNPACKED_BYTES) if disk else MAX_UNPACKED_BYTES


def unavailable(outcome: Outcome, why: str) -> Conclusion:
    """Return the conclusion for a bundle that could not be fetched."""
    return Conclusion(
        outcome, Reason("artifact_unavailable", f"Its bundle could not be fetched: {why}")
    )


def invalid(why: str) -> Conclusion:
    """Return the conclusion for a bundle that cannot be unpacked."""
    return Conclusion(
        Outcome.FAILED, Reason("artifact_invalid", f"Its bundle could not be unpacked: {why}")
    )


def too_large(error: UnpackedTooLarge, limit: int) -> Conclusion:
    """Return the conclusion for a bundle that exceeds the task's disk space."""
    message = f"Its bundle could not be unpacked: {error.problem}"
    return Conclusion(Outcome.FAILED, Reason("artifact_too_large", message, {"limit": limit}))
