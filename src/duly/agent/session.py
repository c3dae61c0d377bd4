"""Feeds events to the agent's state machine, and carries out its effects.

Events come from the servers, the supervisor and the clock. Effects never block: each is
a message to the supervisor, or an entry in a queue that one of the loops below sends. So
events are handled one at a time, in the order of arrival, without locks.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from duly import timers
from duly.agent import events, state
from duly.agent.gateway import Backoff, Gateway
from duly.agent.limits.disk_usage import DiskUsage
from duly.agent.limits.disk_watch import DiskWatch
from duly.agent.limits.shortage import HAND_BACK_DELAY_SECONDS, Shortage
from duly.agent.preparation.bundle_cache import BundleCache
from duly.agent.preparation.bundles import MAX_CONCURRENT_UNPACKS, BundleFetcher
from duly.agent.preparation.executor import Executor, LocalAttempt
from duly.agent.preparation.inputs import InputFetcher
from duly.agent.preparation.task_users import Users
from duly.agent.reporting.logs import LogSender
from duly.agent.reporting.measurements import MeasurementSender
from duly.agent.reporting.preparations import PreparingSender
from duly.agent.reporting.progress import ProgressSender
from duly.agent.reporting.reports import ReportSender
from duly.agent.supervision.outcome import Conclusion, Exit
from duly.agent.supervision.supervisor_link import SupervisorLink
from duly.clock import monotonic
from duly.errors import DulyError, Fenced, Unauthenticated, Unavailable
from duly.model.progress import Progress
from duly.wire import (
    Assignment,
    AttemptRef,
    Heartbeat,
    HeartbeatResponse,
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
        cache: BundleCache,
        users: Users,
        *,
        freezer: bool,
        on_tasks_left: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.link: SupervisorLink
        self._on_tasks_left = on_tasks_left
        self._gateway = gateway
        self._executor = executor
        self._state = state.Agent(freezer=freezer)
        self._reports = ReportSender(
            gateway, self._on_report_answered, lambda: len(self._state.attempts)
        )
        self._logs = LogSender(gateway)
        self._progress = ProgressSender(gateway)
        self._preparations = PreparingSender(gateway)
        self._measurements = MeasurementSender(gateway, executor, self._measure)
        self._inputs = InputFetcher(gateway, self._on_fetched, executor.remove)
        self._bundles = BundleFetcher(gateway, cache, users, self._on_unpacked, executor.remove)
        self._disk_watch = DiskWatch(executor.folders, self._kill_over_disk)
        self._shortage = Shortage()
        self._heartbeat_now = asyncio.Event()
        self._is_over = asyncio.Event()
        self._is_settled = asyncio.Event()
        self._assignment: Assignment | None = None
        self._last_token = 0

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

    def on_supervisor_event(self, name: str, subject: Any) -> None:
        """Handle an event that the supervisor sent."""
        if name == "exited":
            ended = self._executor.exited(subject)
            if ended is not None:
                self._on_exited(*ended)
        elif name == "output":
            attempt = self._executor.by_id(subject[0])
            if attempt is not None:
                self._logs.written(attempt, subject[1])
        elif name == "measured":
            self._measurements.take(subject)

    def on_task_report(self, attempt: LocalAttempt, report: Progress | Throttled) -> None:
        """Handle what a running attempt reported through its socket."""
        if isinstance(report, Throttled):
            attempt.add_throttled(report, monotonic())
            self._measurements.add_throttled(attempt.ref)
        else:
            self._progress.say(attempt.ref, report)

    def _kill_over_disk(self, number: int, usage: DiskUsage) -> None:
        """Kill an attempt that uses too much disk; its exit event leads to the report."""
        attempt = self._executor.by_id(number)
        if attempt is not None:
            attempt.disk_usage = usage
            self.link.send("kill", number)

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
                self._fetch(self._assignment_of(ref))
            case events.Abandon(ref):
                self._preparations.end(ref)
                self._bundles.abandon(ref)
                self._inputs.abandon(ref)
            case events.Terminate(ref):
                self._send_command("terminate", ref)
            case events.Kill(ref):
                self._send_command("kill", ref)
            case events.Freeze(ref):
                self._send_command("freeze", ref)
            case events.Thaw(ref):
                self._send_command("thaw", ref)
            case events.Trust(until):
                self.link.send("trust", until)
            case events.Leave():
                self._is_over.set()
            case events.Rejoin():
                self._is_settled.set()

    def _start(self, ref: AttemptRef) -> None:
        self._preparations.end(ref)
        unpacked, assignment = self._bundles.take(ref), self._inputs.take(ref)
        if assignment is None:
            assignment = self._assignment_of(ref) if unpacked is None else unpacked.assignment
        failed = self._executor.start(assignment, self.link, unpacked)
        if failed is not None:
            self._on_exited(ref, failed)

    def _on_exited(self, ref: AttemptRef, end: Exit) -> None:
        """Handle an exit; one that is due to a shortage of the node only after a delay.

        By then a heartbeat has told the servers about the shortage, so they do not assign the
        same task to this node again.
        """
        lacking = None if end.failure is None else end.failure.shortage
        if lacking is None:
            self.handle(events.Exited(ref, end))
            return
        if self._shortage.current(monotonic()) is None:
            log.error("this node is short of %s; it takes no tasks for a while", lacking)
        self._shortage.begin(lacking, monotonic())
        self._heartbeat_now.set()
        asyncio.get_running_loop().call_later(
            HAND_BACK_DELAY_SECONDS, self.handle, events.Exited(ref, end)
        )

    def _assignment_of(self, ref: AttemptRef) -> Assignment:
        assignment = self._assignment
        assert assignment is not None and assignment.ref == ref  # noqa: S101
        return assignment

    def _fetch(self, assignment: Assignment) -> None:
        """Fetch the bundle first, if the task has one, then the inputs."""
        ref = assignment.ref
        self._preparations.begin(ref)
        if assignment.payload.artifact is not None:
            self._bundles.fetch(assignment, self._executor.bundle_of(ref))
        else:
            self._inputs.fetch(assignment, self._executor.inputs_of(ref))

    def _on_unpacked(self, assignment: Assignment, refusal: Conclusion | None) -> None:
        if refusal is None and assignment.inputs_limit is not None:
            self._inputs.fetch(assignment, self._executor.inputs_of(assignment.ref))
        else:
            self._on_fetched(assignment.ref, refusal)

    def _on_fetched(self, ref: AttemptRef, refusal: Conclusion | None) -> None:
        self.handle(events.Fetched(ref, refusal))

    def _measure(self, identities: list[int]) -> None:
        self.link.send("measure", identities)

    def _send_command(self, verb: str, ref: AttemptRef) -> None:
        self.link.send(verb, self._executor.find(ref).id)

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
        self._is_settled.clear()
        for effect in self._state.begin_incarnation(sent_at, joined.lease_ttl):
            self._apply(effect)
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self._fence_on_refusal(loop))
                for loop in (
                    lambda: self._poll(joined.incarnation, stop),
                    lambda: self._send_heartbeats(joined, stop),
                    lambda: self._reports.run(joined.incarnation),
                    lambda: self._logs.run(joined.incarnation),
                    self._progress.run,
                    self._preparations.run,
                    self._disk_watch.run,
                    lambda: self._measurements.run(joined.heartbeat_interval),
                    self._inputs.run,
                    self._bundles.run,
                    *(self._bundles.unpack,) * MAX_CONCURRENT_UNPACKS,
                )
            ]
            loops += [group.create_task(self._tick()), group.create_task(self._drain_on(stop))]
            lost = group.create_task(self.link.lost.wait())
            over = group.create_task(self._is_over.wait())
            await asyncio.wait((lost, over), return_when=asyncio.FIRST_COMPLETED)
            for task in (*loops, lost, over):
                task.cancel()
        if self.link.lost.is_set():
            raise SupervisorLost
        if self._state.fenced and not stop.is_set():
            await self._wait_until_settled()
            return False
        if not self._state.held:
            await self._leave(joined.incarnation)
        return True

    async def _fence_on_refusal(self, loop: Callable[[], Any]) -> None:
        try:
            await loop()
        except (Fenced, Unauthenticated) as error:
            log.warning("this incarnation is over", extra={"error": error.message})
            self.handle(events.Fenced())
            self._is_over.set()

    async def _wait_until_settled(self) -> None:
        async with asyncio.TaskGroup() as group:
            either = [group.create_task(e.wait()) for e in (self._is_settled, self.link.lost)]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for task in either:
                task.cancel()
        if self.link.lost.is_set():
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
            self.link.flush()
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
            payload = assignment.payload
            needs_fetch = assignment.inputs_limit is not None or payload.artifact is not None
            self.handle(events.Assigned(assignment.ref, needs_fetch))
        self._assignment = None
        return bool(orders.start or orders.stop) and len(self._state.attempts) == before

    async def _send_heartbeats(self, joined: JoinResponse, stop: asyncio.Event) -> None:
        # At most the heartbeat interval: a heartbeat whose response was lost has renewed the
        # lease all the same.
        backoff = Backoff(joined.heartbeat_interval)
        while True:
            self._heartbeat_now.clear()
            sent_at, stopping = monotonic(), stop.is_set()
            message = Heartbeat(
                incarnation=joined.incarnation,
                held=self._state.held,
                stopping=stopping,
                shortage=self._shortage.current(sent_at),
            )
            try:
                renewed = await self._gateway.call(
                    "heartbeat",
                    message,
                    HeartbeatResponse,
                    timeout=joined.lease_ttl / 3,
                    failover_timeout=joined.lease_ttl / 6,
                )
            except Unavailable as error:
                log.warning("cannot renew the lease", extra={"error": error.message})
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self.handle(events.Renewed(sent_at, renewed.ttl, tuple(renewed.stop)))
            self._executor.evict_idle_workspaces()
            pause = max(0.0, sent_at + joined.heartbeat_interval - monotonic())
            await timers.wait_for(self._heartbeat_now, pause)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.handle(events.Ticked())

    async def _drain_on(self, stop: asyncio.Event) -> None:
        """Once `stop` is set, end all attempts, and retry the last reports for a limited time."""
        await stop.wait()
        self._heartbeat_now.set()
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
