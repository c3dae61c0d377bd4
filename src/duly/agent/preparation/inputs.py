"""Fetches what the upstreams of an attempt have left, before it begins.

One page of each attempt in turn, so that a task that depends on thousands keeps none waiting
that depends on one; and attempts without inputs never come here. Pages are written where
they stay, so that this process holds one at a time.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from duly.agent import workspace
from duly.agent.gateway import Backoff, Gateway
from duly.agent.outcome import NEVER_BEGUN, Conclusion
from duly.clock import monotonic
from duly.errors import DulyError, Fenced, NotFound, Unauthenticated, Unavailable
from duly.model.graph import ID, check_ref
from duly.model.task import Outcome, Reason
from duly.wire import Assignment, AttemptRef, Input, Inputs, InputsWanted

log = logging.getLogger(__name__)

TIMEOUT = 30.0
PATIENCE = 60.0
"""Seconds without a page after which an attempt goes back to its queue: another node may do
better."""
LONGEST = 1800.0
"""Seconds after which an attempt fails that has not got all of its inputs, though pages came."""
TOO_SLOW = f"they were not all here within {LONGEST / 60:.0f} minutes."
Done = Callable[[AttemptRef, Conclusion | None], None]


@dataclass(slots=True)
class Wanted:
    """An attempt that has not begun, and how far its inputs are."""

    assignment: Assignment
    folder: str
    since: float
    last_at: float
    above: int = 0
    bytes: int = 0
    is_made: bool = False
    """Whether there is a folder."""
    is_done: bool = False


class TooLarge(Exception):
    """The inputs have more bytes together than the attempt may have."""


class InputFetcher:
    """The attempts that wait for their inputs, or have them and wait for their start."""

    def __init__(self, gateway: Gateway, done: Done, remove: Callable[[str], None]) -> None:
        self._gateway = gateway
        self._done = done
        self._remove = remove
        self._wanted: dict[AttemptRef, Wanted] = {}
        self._written: AttemptRef | None = None
        self._nudged = asyncio.Event()

    def fetch(self, assignment: Assignment, folder: str) -> None:
        """Fetch the inputs of an attempt into `folder`, then say so."""
        now = monotonic()
        self._wanted[assignment.ref] = Wanted(assignment, folder, now, now)
        self._nudged.set()

    def take(self, ref: AttemptRef) -> Assignment | None:
        """Return what was said of an attempt that begins now, if it was here for its inputs."""
        wanted = self._wanted.pop(ref, None)
        return None if wanted is None else wanted.assignment

    def abandon(self, ref: AttemptRef) -> None:
        """Fetch no more for an attempt, and remove what is here; it may be all of it."""
        wanted = self._wanted.pop(ref, None)
        if wanted is not None and wanted.is_made and self._written != ref:
            self._remove(wanted.folder)

    async def run(self) -> None:
        """Fetch until cancelled."""
        backoff = Backoff()
        while True:
            waiting = [wanted for wanted in self._wanted.values() if not wanted.is_done]
            if not waiting:
                self._nudged.clear()
                await self._nudged.wait()
            for wanted in waiting:
                if wanted.assignment.ref not in self._wanted:
                    continue
                if monotonic() - wanted.since > LONGEST:
                    self._end(wanted.assignment.ref, _unavailable(Outcome.FAILED, TOO_SLOW))
                    continue
                try:
                    await self._fetch_page(wanted)
                    backoff.reset()
                except (Unavailable, NotFound) as error:
                    # Not found: a server older than the route; another may not be.
                    log.warning("cannot fetch inputs", extra={"error": error.message})
                    self._lose_patience(wanted, error)
                    await asyncio.sleep(backoff.next())

    async def _fetch_page(self, wanted: Wanted) -> None:
        ref = wanted.assignment.ref
        asked = InputsWanted(ref=ref, above=wanted.above)
        try:
            page = await self._gateway.call("inputs", asked, Inputs, timeout=TIMEOUT)
            await self._write(wanted, page.results)
        except (Unavailable, NotFound, Unauthenticated):
            raise
        except Fenced:
            # It is not ours any more. If it were after all, it would begin elsewhere.
            self._end(ref, NEVER_BEGUN)
        except TooLarge:
            self._end(ref, _too_large(wanted.assignment.inputs_limit or 0))
        except DulyError as error:
            self._end(ref, _unavailable(Outcome.FAILED, error.message))
        except OSError as error:
            self._end(ref, _unavailable(Outcome.FAILED, str(error.strerror or error)))
        else:
            wanted.last_at = monotonic()
            if page.above is None:
                self._end(ref, None)
            else:
                wanted.above = page.above

    async def _write(self, wanted: Wanted, results: list[Input]) -> None:
        """Write a page; in a thread, because a disk may be slow, and a thousand files are many."""
        ref = wanted.assignment.ref
        if ref not in self._wanted:
            return
        for one in results:
            check_name(one.name)
        wanted.bytes += sum(len(one.result) for one in results)
        if wanted.bytes > (wanted.assignment.inputs_limit or 0):
            raise TooLarge
        self._written, wanted.is_made = ref, True
        try:
            await asyncio.to_thread(workspace.write_inputs, wanted.folder, results)
        finally:
            self._written = None
            if ref not in self._wanted:
                self._remove(wanted.folder)

    def _end(self, ref: AttemptRef, refusal: Conclusion | None) -> None:
        """Tell that an attempt may begin, or why it cannot."""
        wanted = self._wanted.get(ref)
        if wanted is not None:
            wanted.is_done = True
            self._done(ref, refusal)

    def _lose_patience(self, wanted: Wanted, error: DulyError) -> None:
        if monotonic() - wanted.last_at > PATIENCE:
            self._end(wanted.assignment.ref, _unavailable(Outcome.EXPIRED, error.message))


def check_name(name: str) -> None:
    """Refuse what is neither an id nor a ref: whatever a server says, no path leads elsewhere."""
    if not ID.fullmatch(name):
        check_ref(name)


def _too_large(limit: int) -> Conclusion:
    message = f"The results of the tasks that it depends on have more than {limit} bytes together."
    return Conclusion(Outcome.FAILED, Reason("inputs_too_large", message, {"limit": limit}))


def _unavailable(outcome: Outcome, why: str) -> Conclusion:
    message = f"The results of the tasks that it depends on could not be fetched: {why}"
    return Conclusion(outcome, Reason("inputs_unavailable", message))
