"""Fetches the results of an attempt's upstreams before the attempt begins.

Pages are fetched round-robin between attempts, so that a task with thousands of upstreams does not
delay a task with one. Attempts without inputs never come here. Each page is written straight to its
final place, so that this process holds one at a time.

Decision: docs/adr/0020-inputs-fetched-by-agent.md.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from duly.agent.gateway import Backoff, Gateway
from duly.agent.preparation import workspace
from duly.agent.supervision.outcome import NEVER_BEGUN, Conclusion
from duly.clock import monotonic
from duly.errors import DulyError, Fenced, NotFound, Unauthenticated, Unavailable
from duly.model.graph import ID_PATTERN, check_ref
from duly.model.task import Outcome, Reason
from duly.model.wording import format_bytes
from duly.wire import Assignment, AttemptRef, InputsPage, InputsRequest, UpstreamResult

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS = 30.0
STALL_TIMEOUT_SECONDS = 60.0
"""Seconds without a page after which an attempt goes back to its queue: another node may do
better."""
MAX_FETCH_SECONDS = 1800.0
"""Seconds after which an attempt without all of its inputs fails, even if pages still arrive."""
TOO_SLOW = f"they were not all here within {MAX_FETCH_SECONDS / 60:.0f} minutes."
OnReady = Callable[[AttemptRef, Conclusion | None], None]


@dataclass(slots=True)
class InputRequest:
    """An attempt that waits for its inputs, and how far they have been fetched."""

    assignment: Assignment
    folder: str
    since: float
    last_at: float
    above: int = 0
    bytes: int = 0
    is_made: bool = False
    """Whether the folder has been made."""
    is_done: bool = False


class InputsTooLarge(Exception):
    """The total size of the inputs exceeds the limit of the attempt."""


class InputFetcher:
    """The attempts that wait for their inputs, or have them and wait to be started."""

    def __init__(self, gateway: Gateway, done: OnReady, remove: Callable[[str], None]) -> None:
        self._gateway = gateway
        self._done = done
        self._remove = remove
        self._wanted: dict[AttemptRef, InputRequest] = {}
        self._written: AttemptRef | None = None
        self._nudged = asyncio.Event()

    def fetch(self, assignment: Assignment, folder: str) -> None:
        """Fetch the inputs of an attempt into `folder`, then call `done`."""
        now = monotonic()
        self._wanted[assignment.ref] = InputRequest(assignment, folder, now, now)
        self._nudged.set()

    def take(self, ref: AttemptRef) -> Assignment | None:
        """Remove and return the assignment of an attempt that begins now; None without inputs."""
        wanted = self._wanted.pop(ref, None)
        return None if wanted is None else wanted.assignment

    def abandon(self, ref: AttemptRef) -> None:
        """Stop fetching for an attempt, and remove its folder even if it is complete."""
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
                if monotonic() - wanted.since > MAX_FETCH_SECONDS:
                    self._end(wanted.assignment.ref, _unavailable(Outcome.FAILED, TOO_SLOW))
                    continue
                try:
                    await self._fetch_page(wanted)
                    backoff.reset()
                except (Unavailable, NotFound) as error:
                    # NotFound: this server is older than the route; another server may have it.
                    log.warning("cannot fetch inputs", extra={"error": error.message})
                    self._lose_patience(wanted, error)
                    await asyncio.sleep(backoff.next())

    async def _fetch_page(self, wanted: InputRequest) -> None:
        ref = wanted.assignment.ref
        asked = InputsRequest(ref=ref, above=wanted.above)
        try:
            page = await self._gateway.call(
                "inputs", asked, InputsPage, timeout=REQUEST_TIMEOUT_SECONDS
            )
            await self._write(wanted, page.results)
        except (Unavailable, NotFound, Unauthenticated):
            raise
        except Fenced:
            # The attempt is no longer ours. If it still were, it would begin elsewhere.
            self._end(ref, NEVER_BEGUN)
        except InputsTooLarge:
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

    async def _write(self, wanted: InputRequest, results: list[UpstreamResult]) -> None:
        """Write a page in a thread: the disk may be slow, and a thousand files are many."""
        ref = wanted.assignment.ref
        if ref not in self._wanted:
            return
        for result in results:
            check_name(result.name)
        wanted.bytes += sum(len(result.result) for result in results)
        if wanted.bytes > (wanted.assignment.inputs_limit or 0):
            raise InputsTooLarge
        self._written, wanted.is_made = ref, True
        try:
            await asyncio.to_thread(workspace.write_inputs, wanted.folder, results)
        finally:
            self._written = None
            if ref not in self._wanted:
                self._remove(wanted.folder)

    def _end(self, ref: AttemptRef, refusal: Conclusion | None) -> None:
        """Report that an attempt may begin, or why it cannot."""
        wanted = self._wanted.get(ref)
        if wanted is not None:
            wanted.is_done = True
            self._done(ref, refusal)

    def _lose_patience(self, wanted: InputRequest, error: DulyError) -> None:
        if monotonic() - wanted.last_at > STALL_TIMEOUT_SECONDS:
            self._end(wanted.assignment.ref, _unavailable(Outcome.EXPIRED, error.message))


def check_name(name: str) -> None:
    """Refuse a name that is neither an id nor a ref: no server may cause path traversal."""
    if not ID_PATTERN.fullmatch(name):
        check_ref(name)


def _too_large(limit: int) -> Conclusion:
    message = f"The results of its upstream tasks have more than {format_bytes(limit)} in total."
    return Conclusion(Outcome.FAILED, Reason("inputs_too_large", message, {"limit": limit}))


def _unavailable(outcome: Outcome, why: str) -> Conclusion:
    message = f"The results of its upstream tasks could not be fetched: {why}"
    return Conclusion(outcome, Reason("inputs_unavailable", message))
