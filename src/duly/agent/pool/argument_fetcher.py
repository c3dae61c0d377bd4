"""Fetches what a call needs before it starts: large arguments, and results of upstream tasks."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from duly.agent.gateway import Backoff, Gateway
from duly.agent.supervision.outcome import NEVER_BEGUN, Conclusion
from duly.clock import monotonic
from duly.errors import DulyError, Fenced, Unauthenticated, Unavailable
from duly.model.task import Outcome, Reason
from duly.wire import ArtifactChunk, ArtifactRequest, Assignment, AttemptRef, InputsPage
from duly.wire import InputsRequest as PageRequest

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS = 30.0
STALL_TIMEOUT_SECONDS = 60.0
"""Seconds after which an attempt goes back to its queue: another worker may do better."""
MAX_CONCURRENT_FETCHES = 8


@dataclass(slots=True)
class FetchedCall:
    """A call whose arguments are being fetched, or are here."""

    assignment: Assignment
    arguments: bytes = b""
    inputs: dict[str, bytes] = field(default_factory=dict)


class ArgumentFetcher:
    """The calls that wait for their arguments, or have them and wait to be started."""

    def __init__(self, gateway: Gateway) -> None:
        self.on_fetched: Callable[[AttemptRef, Conclusion | None], None]
        self._gateway = gateway
        self._wanted: dict[AttemptRef, FetchedCall] = {}
        self._new: asyncio.Queue[FetchedCall] = asyncio.Queue()

    def fetch(self, assignment: Assignment) -> None:
        """Fetch for an attempt, then call `on_fetched`."""
        wanted = self._wanted[assignment.ref] = FetchedCall(assignment)
        self._new.put_nowait(wanted)

    def take(self, ref: AttemptRef) -> FetchedCall | None:
        """Remove and return what was fetched for an attempt; None if it needs nothing."""
        return self._wanted.pop(ref, None)

    async def run(self) -> None:
        """Fetch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_CONCURRENT_FETCHES):
                group.create_task(self._fetch_each())

    async def _fetch_each(self) -> None:
        while True:
            wanted = await self._new.get()
            try:
                refusal = await self._fetch(wanted)
            except asyncio.CancelledError:
                self._new.put_nowait(wanted)  # For the next incarnation, if it still holds it.
                raise
            if self._wanted.get(wanted.assignment.ref) is wanted:
                self.on_fetched(wanted.assignment.ref, refusal)

    async def _fetch(self, wanted: FetchedCall) -> Conclusion | None:
        """Fetch everything for a call; returns why it cannot run, if it cannot."""
        backoff, deadline = Backoff(), monotonic() + STALL_TIMEOUT_SECONDS
        while self._wanted.get(wanted.assignment.ref) is wanted:
            try:
                await self._fetch_arguments(wanted)
                await self._fetch_inputs(wanted)
            except Unavailable as error:
                log.warning("cannot fetch arguments", extra={"error": error.message})
                if monotonic() > deadline:
                    return _unavailable(Outcome.EXPIRED, error.message)
                await asyncio.sleep(backoff.next())
            except Unauthenticated:
                raise
            except Fenced:
                return NEVER_BEGUN
            except DulyError as error:
                return _unavailable(Outcome.FAILED, error.message)
            else:
                break
        return None

    async def _fetch_arguments(self, wanted: FetchedCall) -> None:
        assignment, chunks, size = wanted.assignment, list[bytes](), 0
        if assignment.payload.artifact is None:
            assert assignment.payload.call is not None  # noqa: S101
            wanted.arguments = assignment.payload.call.arguments.encode()
            return
        while True:
            asked = ArtifactRequest(ref=assignment.ref, offset=size)
            chunk = await self._gateway.call(
                "artifact", asked, ArtifactChunk, timeout=REQUEST_TIMEOUT_SECONDS
            )
            chunks.append(chunk.data)
            size += len(chunk.data)
            if not chunk.data or size >= chunk.size:
                wanted.arguments = b"".join(chunks)
                return

    async def _fetch_inputs(self, wanted: FetchedCall) -> None:
        limit = wanted.assignment.inputs_limit
        above, size = 0, 0
        while limit is not None:
            page = await self._gateway.call(
                "inputs",
                PageRequest(ref=wanted.assignment.ref, above=above),
                InputsPage,
                timeout=REQUEST_TIMEOUT_SECONDS,
            )
            wanted.inputs.update({one.name: one.result for one in page.results})
            size += sum(len(one.result) for one in page.results)
            if size > limit:
                raise _TooLarge(f"They have more than {limit:,} bytes in total.")
            if page.above is None:
                return
            above = page.above


class _TooLarge(DulyError):
    """The results of the upstream tasks exceed their limit."""


def _unavailable(outcome: Outcome, why: str) -> Conclusion:
    message = f"The arguments of the call could not be fetched: {why}"
    return Conclusion(outcome, Reason("inputs_unavailable", message))
