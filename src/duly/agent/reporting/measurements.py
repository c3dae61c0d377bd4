"""Reports the start time and resource usage of attempts while they run.

The final report has all of it, but is never sent if this node is lost; then these measurements are
all that is known. An attempt is first reported once it has outlived a heartbeat, or one second if
it has written output, and then each time its age has doubled: a short attempt costs nothing, and a
long one a message per minute.
"""

import asyncio
import logging
from collections.abc import Iterable

from duly.agent.executor import Executor, Sample
from duly.agent.gateway import Backoff, Gateway
from duly.agent.local_attempt import LocalAttempt
from duly.clock import monotonic
from duly.errors import DulyError, Unauthenticated, Unavailable
from duly.wire import AttemptRef, MeasuredUsage, RunningReport, ThrottledAttempt

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 0.5
MIN_AGE_WITH_OUTPUT_SECONDS = 1.0
"""Seconds after which an attempt with output is first reported: its output is sent anyway."""
MAX_INTERVAL_SECONDS = 60.0
"""Maximum number of seconds between two messages about the same attempt."""
MAX_BATCH_ATTEMPTS = 500
"""Attempts in one message; the others follow at the next check."""
REQUEST_TIMEOUT_SECONDS = 15.0


class MeasurementSender:
    """The attempts that have been reported, and when each is due again."""

    def __init__(self, gateway: Gateway, executor: Executor) -> None:
        self._gateway = gateway
        self._executor = executor
        self._due: dict[AttemptRef, float] = {}
        self._samples: list[Sample] = []
        self._throttled: set[AttemptRef] = set()
        """The attempts that were throttled since the last message."""

    def add_throttled(self, ref: AttemptRef) -> None:
        """Report at the next check that a downstream has throttled an attempt."""
        self._throttled.add(ref)

    def take(self, samples: Iterable[Sample]) -> None:
        """Queue the supervisor's samples, which are sent at the next check."""
        self._samples += samples

    async def run(self, min_age: float) -> None:
        """Report attempts that are older than `min_age` seconds, until cancelled."""
        backoff = Backoff()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            samples, self._samples = self._samples, []
            try:
                await self._tell(samples)
                backoff.reset()
            except Unavailable as error:
                log.warning("cannot tell what runs", extra={"error": error.message})
                await asyncio.sleep(backoff.next())
            if due := self._choose(min_age):
                self._executor.measure([attempt.id for attempt in due])

    def _choose(self, min_age: float) -> list[LocalAttempt]:
        """Return the attempts that are due, and forget those that have ended."""
        running, now = self._executor.running, monotonic()
        self._due = {attempt.ref: due for attempt in running if (due := self._due.get(attempt.ref))}
        return [attempt for attempt in running if now >= self._due_at(attempt, min_age)][
            :MAX_BATCH_ATTEMPTS
        ]

    def _due_at(self, attempt: LocalAttempt, min_age: float) -> float:
        """Return when an attempt is to be reported next."""
        due = self._due.get(attempt.ref)
        if due is not None:
            return due
        age = min(min_age, MIN_AGE_WITH_OUTPUT_SECONDS) if attempt.log_size else min_age
        return attempt.assigned_at + age

    async def _tell(self, samples: Iterable[Sample]) -> None:
        now = monotonic()
        # A supervisor that takes longer than one check interval is asked twice, and answers twice.
        latest = {sample[0]: sample for sample in samples}
        measured = [
            MeasuredUsage(attempt.ref, max(0.0, now - since), cpu, memory and memory / 2**20)
            for number, since, cpu, memory in latest.values()
            if (attempt := self._executor.by_id(number)) is not None
            and now >= self._due.get(attempt.ref, now)
        ]
        throttled = self._take_throttled()
        if not measured and not throttled:
            return
        report = RunningReport(
            measured=measured,
            throttled=[
                ThrottledAttempt(attempt.ref, told)
                for attempt in throttled
                for told in attempt.throttled_by(now)
            ],
        )
        for attempt in throttled:
            attempt.untold = None
        try:
            await self._gateway.send("running", report, timeout=REQUEST_TIMEOUT_SECONDS)
        except Unavailable:
            for call in report.throttled:
                self._return_throttled(call)
            raise
        except Unauthenticated:
            raise
        except DulyError as error:
            # This server is older than the route; another server may have it.
            log.info("what runs was refused", extra={"error": error.message})
        for measurement in measured:
            self._due[measurement.ref] = now + min(
                max(measurement.ran, CHECK_INTERVAL_SECONDS), MAX_INTERVAL_SECONDS
            )

    def _take_throttled(self) -> list[LocalAttempt]:
        """Return the attempts that were throttled and still run; the report of others tells it."""
        if not self._throttled:
            return []
        refs, self._throttled = self._throttled, set()
        return [attempt for attempt in self._executor.running if attempt.ref in refs]

    def _return_throttled(self, call: ThrottledAttempt) -> None:
        """Report a call again at the next check, because the message with it was lost."""
        for attempt in self._executor.running:
            if attempt.ref == call.ref:
                attempt.untold = {*(attempt.untold or ()), call.throttled.key}
                self._throttled.add(call.ref)
