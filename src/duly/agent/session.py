"""Feeds events to the agent's state machine, and carries out its effects.

Events come from the servers, the executor and the clock. Effects never block: each is
a message to the executor, or an entry in a queue that one of the loops below sends. So
events are handled one at a time, in the order of arrival, without locks.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from duly.agent import events, state
from duly.agent.executor import Executor, Sample
from duly.agent.gateway import Backoff, Gateway
from duly.agent.heartbeats import HeartbeatSender
from duly.agent.limits.shortage import HAND_BACK_DELAY_SECONDS
from duly.agent.local_attempt import LocalAttempt
from duly.agent.reporting.attempt_keys import AttemptKeys
from duly.agent.reporting.logs import LogSender
from duly.agent.reporting.measurements import MeasurementSender
from duly.agent.reporting.preparations import PreparingSender
from duly.agent.reporting.progress import ProgressSender
from duly.agent.reporting.reports import ReportSender
from duly.agent.supervision.outcome import Conclusion, Exit
from duly.clock import monotonic
from duly.errors import DulyError, Fenced, Unauthenticated, Unavailable
from duly.model.progress import Progress
from duly.wire import (
    Assignment,
    AttemptRef,
    JoinResponse,
    LeaveRequest,
    PollRequest,
    PollResponse,
    Throttled,
)

log = logging.getLogger(__name__)

POLL_WAIT_SECONDS = 25.0
POLL_SLACK_SECONDS = 10.0
"""How much longer than the long poll's wait the response may take."""
IDLE_POLL_PAUSE_SECONDS = 0.05
"""The pause before the next poll when the response contained nothing new."""
TICK_SECONDS = 0.25
LEAVE_TIMEOUT_SECONDS = 3.0
LAST_REPORTS_TIMEOUT_SECONDS = 10.0
"""How long a stopping agent retries its last reports."""


class Session:
    """The state machine of an agent, with the loops that feed it and carry out its effects."""

    def __init__(
        self,
        gateway: Gateway,
        executor: Executor,
        *,
        freezer: bool,
        keys: AttemptKeys | None = None,
        on_tasks_left: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._on_tasks_left = on_tasks_left
        self._gateway = gateway
        self._executor = executor
        self._state = state.Agent(freezer=freezer)
        self._reports = ReportSender(
            gateway, self._on_report_answered, lambda: len(self._state.attempts)
        )
        self._logs = LogSender(gateway)
        self._progress = ProgressSender(gateway, keys or AttemptKeys(gateway))
        self._preparations = PreparingSender(gateway)
        self._measurements = MeasurementSender(gateway, executor)
        self._heartbeats = HeartbeatSender(
            gateway, lambda: self._state.held, executor.offer, self._on_renewed
        )
        self._is_over = asyncio.Event()
        self._is_settled = asyncio.Event()
        self._assignment: Assignment | None = None
        """The assignment that is being handled."""
        self._last_token = 0
        self._is_rejoining = False
        executor.connect(self)

    def lease_ends_at(self) -> float:
        """Return when servers may give this node's attempts to others, by the monotonic clock.

        Any thread may call it.
        """
        return self._state.trusted_until + state.LEASE_MARGIN_SECONDS

    # Events in, effects out.

    def handle(self, event: events.Event) -> None:
        """Pass `event` to the state machine, and carry out the effects."""
        for effect in self._state.handle(event, monotonic()):
            self._apply(effect)

    # What the executor tells.

    def exited(self, ref: AttemptRef, end: Exit) -> None:
        """Handle an exit; one that is due to a shortage of the node only after a delay.

        By then a heartbeat has told the servers about the shortage, so they do not assign the
        same task to this node again.
        """
        lacking = None if end.failure is None else end.failure.shortage
        if lacking is None:
            self.handle(events.Exited(ref, end))
            return
        self._heartbeats.lack(lacking)
        asyncio.get_running_loop().call_later(
            HAND_BACK_DELAY_SECONDS, self.handle, events.Exited(ref, end)
        )

    def fetched(self, ref: AttemptRef, refusal: Conclusion | None) -> None:
        """Handle that what an attempt needs is here, or cannot be."""
        self.handle(events.Fetched(ref, refusal))

    def written(self, attempt: LocalAttempt, size: int) -> None:
        """Handle new output of a running attempt."""
        self._logs.written(attempt, size)

    def measured(self, samples: Iterable[Sample]) -> None:
        """Handle what was measured of running attempts."""
        self._measurements.take(samples)

    def reported(self, attempt: LocalAttempt, report: Progress | Throttled) -> None:
        """Handle what a running attempt itself reported."""
        if isinstance(report, Throttled):
            attempt.add_throttled(report, monotonic())
            self._measurements.add_throttled(attempt.ref)
        else:
            self._progress.say(attempt.ref, report)

    def heartbeat_soon(self) -> None:
        """Send a heartbeat without waiting for the interval."""
        self._heartbeats.soon()

    def rejoin(self) -> None:
        """End this incarnation, unless attempts are held: those are finished first."""
        self._heartbeats.soon()
        if not self._state.held:
            self._is_rejoining = True
            self._is_over.set()

    # What the state machine wants done.

    def _apply(self, effect: events.Effect) -> None:
        # Cases are tried in order, so the three effects that every attempt has come first.
        match effect:
            case events.Start(ref):
                self._start(ref)
            case events.Report(ref, conclusion):
                self._report(ref, conclusion)
            case events.Forget(ref):
                self._reports.forget(ref)
                self._logs.forget(ref)
                self._progress.forget(ref)
                self._executor.forget(ref)
            case events.Fetch(ref):
                assert self._assignment is not None  # noqa: S101
                self._preparations.begin(ref)
                self._executor.fetch(self._assignment)
            case events.Abandon(ref):
                self._preparations.end(ref)
                self._executor.abandon(ref)
            case events.Terminate(ref):
                self._executor.terminate(ref)
            case events.Kill(ref):
                self._executor.kill(ref)
            case events.Freeze(ref):
                self._executor.freeze(ref)
            case events.Thaw(ref):
                self._executor.thaw(ref)
            case events.Trust(until):
                self._executor.trust(until)
            case events.Leave():
                self._is_over.set()
            case events.Rejoin():
                self._is_settled.set()

    def _start(self, ref: AttemptRef) -> None:
        self._preparations.end(ref)
        handled = self._assignment
        is_new = handled is not None and handled.ref == ref
        failed = self._executor.start(ref, handled if is_new else None)
        if failed is not None:
            self.exited(ref, failed)

    def _report(self, ref: AttemptRef, conclusion: Conclusion) -> None:
        self._progress.forget(ref)
        report = self._executor.report(ref, conclusion)
        ended_at = self._executor.ended_at(ref)

        def send() -> None:
            self._reports.add(report, ended_at)

        if report.log_size:
            self._logs.finish(self._executor.find(ref), send)
        else:
            send()

    def _on_renewed(self, renewed: events.Renewed) -> None:
        self.handle(renewed)
        self._executor.renewed()

    def _on_report_answered(self, ref: AttemptRef, accepted: bool) -> None:
        attempt = self._state.attempts.get(ref)
        if not accepted and not (attempt and attempt.is_settled):
            log.warning("stale report", extra={"task": ref.task, "attempt": ref.attempt})
        self.handle(events.ReportAnswered(ref))

    # The loops of one incarnation.

    async def serve(self, joined: JoinResponse, sent_at: float, stop: asyncio.Event) -> bool:
        """Run tasks as the incarnation that joined, until `stop` is set (True) or it is fenced.

        When it returns False, nothing of the fenced incarnation is left.
        """
        self._is_over.clear()
        self._is_rejoining = False
        self._is_settled.clear()
        for effect in self._state.begin_incarnation(sent_at, joined.lease_ttl):
            self._apply(effect)
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self._fence_on_refusal(loop))
                for loop in (
                    lambda: self._poll(joined.incarnation, stop),
                    lambda: self._heartbeats.run(joined, stop),
                    lambda: self._reports.run(joined.incarnation),
                    lambda: self._logs.run(joined.incarnation),
                    self._progress.run,
                    self._preparations.run,
                    lambda: self._measurements.run(joined.heartbeat_interval),
                    *self._executor.loops(),
                )
            ]
            loops += [group.create_task(self._tick()), group.create_task(self._drain_on(stop))]
            await _first_of(self._executor.lost, self._is_over)
            for task in loops:
                task.cancel()
        if self._executor.lost.is_set():
            raise SupervisorLost
        if self._state.fenced and not stop.is_set():
            await self._wait_until_settled()
            return False
        if not self._state.held:
            await self._leave(joined.incarnation)
        return stop.is_set() or not self._is_rejoining

    async def _fence_on_refusal(self, loop: Callable[[], Any]) -> None:
        try:
            await loop()
        except (Fenced, Unauthenticated) as error:
            log.warning("this incarnation is over", extra={"error": error.message})
            self.handle(events.Fenced())
            self._is_over.set()

    async def _wait_until_settled(self) -> None:
        await _first_of(self._is_settled, self._executor.lost)
        if self._executor.lost.is_set():
            raise SupervisorLost

    async def _poll(self, incarnation: int, stop: asyncio.Event) -> None:
        backoff = Backoff()
        while not stop.is_set():
            message = PollRequest(
                incarnation=incarnation,
                held=self._state.held,
                wait=POLL_WAIT_SECONDS,
                latest=self._last_token,
            )
            try:
                orders = await self._gateway.call(
                    "poll", message, PollResponse, timeout=POLL_WAIT_SECONDS + POLL_SLACK_SECONDS
                )
            except Unavailable as error:
                log.warning("cannot poll", extra={"error": error.message})
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            was_repeat = self._apply_orders(orders)
            # Send starts now: encoding the next poll would delay them.
            self._executor.flush()
            # If the held attempts changed meanwhile, a repeated order (to stop an attempt that has
            # just ended) is no reason to pause: a start would have to wait.
            if was_repeat and self._state.held == message.held:
                await asyncio.sleep(IDLE_POLL_PAUSE_SECONDS)

    def _apply_orders(self, orders: PollResponse) -> bool:
        """Handle a poll's response; return True if it had orders, and none changed anything."""
        before = len(self._state.attempts)
        for stop in orders.stop:
            self.handle(events.StopOrdered(stop))
        for assignment in orders.start:
            self._last_token = max(self._last_token, assignment.ref.token)
            self._assignment = assignment
            needs_fetch = self._executor.needs_fetch(assignment)
            self.handle(events.Assigned(assignment.ref, needs_fetch))
        self._assignment = None
        return bool(orders.start or orders.stop) and len(self._state.attempts) == before

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.handle(events.Ticked())

    async def _drain_on(self, stop: asyncio.Event) -> None:
        """Once `stop` is set, end all attempts, and retry the last reports for a limited time."""
        await stop.wait()
        self._heartbeats.soon()
        self.handle(events.StopRequested())
        seconds_left, tasks_left = LAST_REPORTS_TIMEOUT_SECONDS, 0
        while seconds_left > 0:
            before = tasks_left
            tasks_left = sum(not attempt.ended for attempt in self._state.attempts.values())
            if tasks_left != before:
                self._on_tasks_left(tasks_left)
            await asyncio.sleep(TICK_SECONDS)
            if not tasks_left:
                seconds_left -= TICK_SECONDS
        log.error("stopping although no server has answered the last reports")
        self._is_over.set()

    async def _leave(self, incarnation: int) -> None:
        """Tell the servers that this incarnation runs nothing and has reported everything."""
        try:
            await self._gateway.send(
                "leave", LeaveRequest(incarnation=incarnation), timeout=LEAVE_TIMEOUT_SECONDS
            )
        except DulyError as error:
            log.warning("cannot leave the cluster", extra={"error": error.message})


class SupervisorLost(Exception):
    """The supervisor died, so nothing controls the attempts on this node any more."""


async def _first_of(*awaited: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait()) for event in awaited]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
