"""Tells the servers since when attempts run and what they have used, while they run.

A report tells all of it at the end, but if this node is lost there is none, and what was told
here is all that anybody knows. An attempt is told of once it has outlived a heartbeat, or a
second if it has written something, and then each time that its age has doubled: so a short
attempt costs nothing, and a long one a message per minute.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from duly.agent.executor import Executor, Local
from duly.agent.gateway import Backoff, Gateway
from duly.clock import monotonic
from duly.errors import DulyError, Unauthenticated, Unavailable
from duly.wire import AttemptRef, Measured, Running

log = logging.getLogger(__name__)

LOOK_INTERVAL = 0.5
AGE_OF_WRITERS = 1.0
"""Seconds after which an attempt is first told of whose output leaves the node anyway."""
MAX_INTERVAL = 60.0
"""Seconds between two messages about the same attempt, at most."""
MAX_BATCH = 500
"""Attempts that one message tells of; the others follow at the next look."""
TIMEOUT = 15.0
Sample = tuple[int, float, float | None, int | None]
"""What the supervisor tells of an attempt: its number, its start, cpu seconds, bytes of memory."""


class MeasurementSender:
    """The attempts that have been told of, and when each is to be told of next."""

    def __init__(
        self, gateway: Gateway, executor: Executor, measure: Callable[[list[int]], None]
    ) -> None:
        self._gateway = gateway
        self._executor = executor
        self._measure = measure
        self._due: dict[AttemptRef, float] = {}
        self._samples: list[Sample] = []

    def take(self, samples: Iterable[Sample]) -> None:
        """Take in what the supervisor has measured; it leaves with the next look."""
        self._samples += samples

    async def run(self, min_age: float) -> None:
        """Tell of attempts that are older than `min_age` seconds, until cancelled."""
        backoff = Backoff()
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            samples, self._samples = self._samples, []
            try:
                await self._tell(samples)
                backoff.reset()
            except Unavailable as error:
                log.warning("cannot tell what runs", extra={"error": error.message})
                await asyncio.sleep(backoff.next())
            if due := self._choose(min_age):
                self._measure([local.id for local in due])

    def _choose(self, min_age: float) -> list[Local]:
        """Return the attempts that are to be told of, and forget those that have ended."""
        running, now = self._executor.running, monotonic()
        self._due = {local.ref: due for local in running if (due := self._due.get(local.ref))}
        return [local for local in running if now >= self._due_at(local, min_age)][:MAX_BATCH]

    def _due_at(self, local: Local, min_age: float) -> float:
        """Return when an attempt is to be told of next."""
        due = self._due.get(local.ref)
        if due is not None:
            return due
        age = min(min_age, AGE_OF_WRITERS) if local.log_size else min_age
        return local.assigned_at + age

    async def _tell(self, samples: Iterable[Sample]) -> None:
        now = monotonic()
        # A supervisor that takes longer than a look is asked twice, and answers twice.
        latest = {sample[0]: sample for sample in samples}
        measured = [
            Measured(local.ref, max(0.0, now - since), cpu, memory and memory / 2**20)
            for number, since, cpu, memory in latest.values()
            if (local := self._executor.by_id(number)) is not None
            and now >= self._due.get(local.ref, now)
        ]
        if not measured:
            return
        try:
            await self._gateway.send("running", Running(measured=measured), timeout=TIMEOUT)
        except (Unavailable, Unauthenticated):
            raise
        except DulyError as error:
            # A server older than the route; another may not be.
            log.info("what runs was refused", extra={"error": error.message})
        for one in measured:
            self._due[one.ref] = now + min(max(one.ran, LOOK_INTERVAL), MAX_INTERVAL)
