"""Fetches the bundle of an attempt and unpacks it, before the attempt begins.

A bundle that several attempts wait for comes once. Pieces are fetched round-robin by tenant, and
by bundle within a tenant, so that a large bundle keeps no small one waiting, and many keep no other
tenant's; what was fetched is kept for later (`duly.agent.bundle_cache`). Each attempt has a folder
and a user of its own, so each unpacks for itself, in a thread, round-robin by tenant, too.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from duly import alarm
from duly.agent.bundle_cache import Arrival, BundleCache
from duly.agent.gateway import Backoff, Gateway
from duly.agent.outcome import NEVER_BEGUN, Conclusion
from duly.agent.tenant_queue import TenantQueue
from duly.agent.unpack import Damaged, Unwanted, unpack
from duly.agent.users import User, Users
from duly.clock import monotonic
from duly.errors import DulyError, Fenced, Invalid, NotFound, Unauthenticated, Unavailable
from duly.model.bundle import MOST_BYTES
from duly.model.tar import TooMuch
from duly.model.task import Outcome, Reason
from duly.wire import ArtifactPiece, ArtifactWanted, Assignment, AttemptRef

log = logging.getLogger(__name__)

TIMEOUT = 60.0
PATIENCE = 60.0
"""Seconds without a piece after which an attempt goes back to its queue: another node may do
better."""
LONGEST = 1800.0
"""Seconds after which an attempt ends that has not got its bundle, though pieces came."""
MOST_DAMAGED = 3
"""After so many times it is the disk, and another node may do better."""
UNPACKERS = 3
"""How many bundles are unpacked at once."""
MAX_UNPACKERS_PER_TENANT = UNPACKERS - 1
"""One is free, however long those of a single tenant take, when another tenant comes."""
TOO_SLOW = f"it was not here within {LONGEST / 60:.0f} minutes."
FULL = (errno.ENOSPC, errno.EDQUOT)
SPOILED = "what came has another hash than it should."
Done = Callable[[Assignment, Conclusion | None], None]


@dataclass(slots=True, eq=False)
class Wanted:
    """An attempt that has not begun, and its folder once that is made."""

    assignment: Assignment
    tenant: int
    folder: str
    file: Path
    since: float = field(default_factory=monotonic)
    user: User | None = None
    damaged: int = 0
    """How often what was kept for it was not what it should have been."""
    is_unpacked: bool = False
    is_unwanted: bool = False
    has_made_room: bool = False

    @property
    def sha256(self) -> str:
        """Return what its bundle is called."""
        return self.file.name


@dataclass(slots=True)
class Fetching:
    """A bundle that is on its way, and who waits for it."""

    tenant: int
    arrival: Arrival
    last_at: float
    next_at: float = 0.0
    """When the next piece is to be asked for."""
    seconds: float = 0.0
    """How long its own pieces have taken, without the time in which others had their turns."""
    backoff: Backoff = field(default_factory=Backoff)
    has_made_room: bool = False
    waiting: list[Wanted] = field(default_factory=list)


class BundleFetcher:
    """The attempts that wait for their bundles, or have them and wait for their start."""

    def __init__(
        self,
        gateway: Gateway,
        cache: BundleCache,
        users: Users,
        done: Done,
        remove: Callable[[str], None],
    ) -> None:
        self._gateway = gateway
        self._cache = cache
        self._users = users
        self._done = done
        self._remove = remove
        self._wanted: dict[AttemptRef, Wanted] = {}
        self._fetching: dict[Path, Fetching] = {}
        self._arrived: TenantQueue[Wanted] = TenantQueue(MAX_UNPACKERS_PER_TENANT)
        self._nudged = asyncio.Event()
        self._fits = True

    def fetch(self, assignment: Assignment, folder: str) -> None:
        """Unpack the bundle of an attempt into `folder`, then say so."""
        sha256, tenant = assignment.payload.artifact or "", assignment.tenant
        if tenant is None:
            # What we keep must never be another's.
            self._done(assignment, unavailable(Outcome.FAILED, "its server is too old."))
            return
        try:
            file = self._cache.path_of(tenant, sha256)
        except Invalid as error:
            self._done(assignment, unavailable(Outcome.FAILED, error.message))
            return
        wanted = self._wanted[assignment.ref] = Wanted(assignment, tenant, folder, file)
        if file in self._fetching or not self._cache.use(file):
            self._await(wanted)
        else:
            self._arrived.put(wanted.tenant, wanted)

    def take(self, ref: AttemptRef) -> Wanted | None:
        """Return the folder and user of an attempt that begins now, if it has a bundle."""
        return self._wanted.pop(ref, None)

    def abandon(self, ref: AttemptRef) -> None:
        """Do no more for an attempt, and remove what is here; it may be all of it."""
        wanted = self._wanted.pop(ref, None)
        if wanted is None:
            return
        wanted.is_unwanted = True
        fetching = self._fetching.get(wanted.file)
        if fetching is not None and wanted in fetching.waiting:
            fetching.waiting.remove(wanted)
        if wanted.is_unpacked:
            self._remove(wanted.folder)
            self._users.give_back(wanted.user)

    def _await(self, wanted: Wanted) -> None:
        fetching = self._fetching.get(wanted.file)
        if fetching is None:
            fetching = Fetching(wanted.tenant, Arrival(wanted.file), monotonic())
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
                    # The tenant's other bundles come first next time.
                    self._fetching[file] = self._fetching.pop(file)
                    await self._try(fetching)

    async def _wait(self) -> None:
        """Wait until a piece can be asked for."""
        self._nudged.clear()
        next_at = min((one.next_at for one in self._fetching.values()), default=None)
        pause = None if next_at is None else next_at - monotonic()
        if pause is not None and pause <= 0:
            return
        await alarm.wait_for(self._nudged, pause)

    async def _try(self, fetching: Fetching) -> None:
        """Fetch a piece; if there is none, this bundle waits, and no other one."""
        began = monotonic()
        try:
            await self._fetch_piece(fetching)
            fetching.backoff.reset()
        except (Unavailable, NotFound) as error:
            # Not found: a server older than the route; another may not be.
            log.warning("cannot fetch a bundle", extra={"error": error.message})
            fetching.next_at = monotonic() + fetching.backoff.next()
            self._lose_patience(fetching, error)
        finally:
            fetching.seconds += monotonic() - began

    async def _fetch_piece(self, fetching: Fetching) -> None:
        asking, arrival = fetching.waiting[0], fetching.arrival
        asked = ArtifactWanted(ref=asking.assignment.ref, offset=arrival.size)
        try:
            piece = await self._gateway.call("artifact", asked, ArtifactPiece, timeout=TIMEOUT)
            is_whole = await asyncio.to_thread(take_in, arrival, piece)
        except (Unavailable, NotFound, Unauthenticated):
            raise
        except Fenced:
            # It is not ours any more; for others that wait, we ask in their name.
            self._end(asking, NEVER_BEGUN)
        except DulyError as error:
            self._end(asking, unavailable(Outcome.FAILED, error.message))
        except Damaged:
            self._end_all(fetching, unavailable(Outcome.FAILED, SPOILED))
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

    async def _make_room(self, stopped: Fetching | Wanted, error: OSError) -> bool:
        """Keep nothing for later when the disk is full; False if that was done for this before."""
        if stopped.has_made_room or error.errno not in FULL:
            return False
        stopped.has_made_room = True
        log.warning("the disk is full; no bundles are kept for later")
        await asyncio.to_thread(self._cache.trim, self._is_needed, 0)
        return True

    def _is_needed(self, file: Path) -> bool:
        # Asked by another thread: of a copy, since attempts come and go.
        wanted = list(self._wanted.values())
        return any(one.file == file and not one.is_unpacked for one in wanted)

    def _end_late(self, fetching: Fetching) -> None:
        """Let nothing that is too slow go on for ever: it holds room, and others fetch it too.

        It fails if most of the time went by with its own pieces. If others had most of the turns,
        that is not its fault: it goes back to its queue.
        """
        outcome = Outcome.FAILED if fetching.seconds > LONGEST / 2 else Outcome.EXPIRED
        for wanted in list(fetching.waiting):
            if monotonic() - wanted.since > LONGEST:
                self._end(wanted, unavailable(outcome, TOO_SLOW))

    def _lose_patience(self, fetching: Fetching, error: DulyError) -> None:
        if monotonic() - fetching.last_at > PATIENCE:
            self._end_all(fetching, unavailable(Outcome.EXPIRED, error.message))

    async def unpack(self) -> None:
        """Unpack what has come, one after the other, until cancelled."""
        while True:
            tenant = await self._arrived.next_tenant()
            with self._arrived.take(tenant) as wanted:
                if not wanted.is_unwanted:
                    await self._unpack_or_end(wanted)
                    if not self._fits:
                        await self._trim()

    async def _unpack_or_end(self, wanted: Wanted) -> None:
        try:
            await self._unpack(wanted)
        except Unwanted:
            pass
        except Damaged:
            self._fetch_again(wanted)
        except TooMuch as error:
            self._end(wanted, too_large(error, limit_of(wanted.assignment)))
        except Invalid as error:
            self._end(wanted, invalid(error.message))
        except OSError as error:
            if await self._make_room(wanted, error):
                self._arrived.put(wanted.tenant, wanted)
            else:
                self._end(wanted, unavailable(Outcome.FAILED, f"{error.strerror or error}."))
        except Exception as error:
            # Whatever is wrong with one bundle, all other attempts of the node go on.
            log.exception("cannot unpack a bundle")
            self._end(wanted, invalid(f"{type(error).__name__} on its node."))
        else:
            if not wanted.is_unwanted:
                self._done(wanted.assignment, None)

    def _fetch_again(self, wanted: Wanted) -> None:
        log.warning("a bundle that was kept is gone or damaged")
        self._cache.remove(wanted.file)
        wanted.damaged += 1
        if wanted.damaged >= MOST_DAMAGED:
            self._end(wanted, unavailable(Outcome.FAILED, SPOILED))
        elif not wanted.is_unwanted:
            self._await(wanted)

    async def _unpack(self, wanted: Wanted) -> None:
        """Unpack in a thread: a disk may be slow, and files many."""
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
                self._users.give_back(wanted.user)
            elif wanted.is_unwanted:
                self._remove(wanted.folder)
                self._users.give_back(wanted.user)
            else:
                wanted.is_unpacked = True

    def _end_all(self, fetching: Fetching, refusal: Conclusion) -> None:
        for wanted in list(fetching.waiting):
            self._end(wanted, refusal)

    def _end(self, wanted: Wanted, refusal: Conclusion) -> None:
        """Tell why an attempt cannot begin, and do no more for it."""
        if not wanted.is_unwanted:
            self.abandon(wanted.assignment.ref)
            self._done(wanted.assignment, refusal)


def take_in(arrival: Arrival, piece: ArtifactPiece) -> bool:
    """Write a piece, and say whether it was the last; raises Damaged if that is not what it is."""
    arrival.add(piece.data)
    if arrival.size < piece.size:
        if not piece.data:
            raise Unavailable("a server gave nothing, though there is more.")
        return False
    if not arrival.keep():
        raise Damaged
    return True


def limit_of(assignment: Assignment) -> int:
    """Return how many bytes the files of a bundle may have: those of the task's disk."""
    disk = assignment.resources.disk_mb * 2**20
    return min(disk, MOST_BYTES) if disk else MOST_BYTES


def unavailable(outcome: Outcome, why: str) -> Conclusion:
    """Say that a bundle could not be had."""
    return Conclusion(
        outcome, Reason("artifact_unavailable", f"Its bundle could not be fetched: {why}")
    )


def invalid(why: str) -> Conclusion:
    """Say that a bundle is not one that can be unpacked."""
    return Conclusion(
        Outcome.FAILED, Reason("artifact_invalid", f"Its bundle could not be unpacked: {why}")
    )


def too_large(error: TooMuch, limit: int) -> Conclusion:
    """Say that a bundle holds more than the task may have on its disk."""
    message = f"Its bundle could not be unpacked: {error.message}"
    return Conclusion(Outcome.FAILED, Reason("artifact_too_large", message, {"limit": limit}))
