"""One agent at work: what happens goes into the state machine, and what comes out is done.

Events come from the servers, the supervisor and the clock. Doing never waits: an
effect is a message to the supervisor, or an entry in what the loops below send. So
events are handled one at a time, in the order in which they come, and there is
nothing to lock.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from duly import alarm
from duly.agent import events, state
from duly.agent.bundle_cache import BundleCache
from duly.agent.bundles import UNPACKERS, BundleFetcher
from duly.agent.disk_usage import DiskUsage
from duly.agent.disk_watch import DiskWatch
from duly.agent.executor import Executor
from duly.agent.gateway import Backoff, Gateway
from duly.agent.inputs import InputFetcher
from duly.agent.link import Link
from duly.agent.logs import LogSender
from duly.agent.measuring import MeasurementSender
from duly.agent.outcome import Conclusion, Exit
from duly.agent.preparing import PreparingSender
from duly.agent.progress import ProgressSender
from duly.agent.reports import ReportSender
from duly.agent.shortage import HAND_BACK_DELAY, Shortage
from duly.agent.users import Users
from duly.clock import monotonic
from duly.errors import DulyError, Fenced, Unauthenticated, Unavailable
from duly.model.progress import Progress
from duly.wire import (
    Assignment,
    AttemptRef,
    Heartbeat,
    Joined,
    Leave,
    Orders,
    Poll,
    Renewed,
)

log = logging.getLogger(__name__)

POLL_WAIT = 25.0
POLL_SLACK = 10.0
"""Seconds that the answer to a poll may be late."""
IDLE_PAUSE = 0.05
"""Seconds before the next poll when the answer told us nothing new."""
TICK = 0.25
LEAVE_TIMEOUT = 3.0
STOP_PATIENCE = 10.0
"""Seconds that the last reports have for getting through when the agent stops."""


class Session:
    """The agent's state, and everything that acts on it."""

    def __init__(
        self,
        gateway: Gateway,
        executor: Executor,
        cache: BundleCache,
        users: Users,
        *,
        freezer: bool,
    ) -> None:
        self.link: Link
        self._gateway = gateway
        self._executor = executor
        self._state = state.Agent(freezer=freezer)
        self._reports = ReportSender(gateway, self._answered, lambda: len(self._state.attempts))
        self._logs = LogSender(gateway)
        self._progress = ProgressSender(gateway)
        self._preparing = PreparingSender(gateway)
        self._measuring = MeasurementSender(gateway, executor, self._measure)
        self._inputs = InputFetcher(gateway, self._fetched, executor.remove)
        self._bundles = BundleFetcher(gateway, cache, users, self._unpacked, executor.remove)
        self._disk_watch = DiskWatch(executor.folders, self._end_over_disk)
        self._shortage = Shortage()
        self._beat_now = asyncio.Event()
        self._over = asyncio.Event()
        self._settled = asyncio.Event()
        self._assignment: Assignment | None = None
        self._latest = 0

    def lease_ends_at(self) -> float:
        """Return when others may be given what we hold, on our clock; any thread may ask."""
        return self._state.trusted_until + state.MARGIN

    # Events in, effects out.

    def take(self, event: events.Event) -> None:
        """Let the state machine handle `event`, and do what it asks for."""
        for effect in self._state.handle(event, monotonic()):
            self._do(effect)

    def supervisor_says(self, name: str, subject: Any) -> None:
        """Take in an event of the supervisor."""
        if name == "exited":
            ended = self._executor.exited(subject)
            if ended is not None:
                self._exited(*ended)
        elif name == "output":
            local = self._executor.by_id(subject[0])
            if local is not None:
                self._logs.written(local, subject[1])
        elif name == "measured":
            self._measuring.take(subject)

    def attempt_says(self, ref: AttemptRef, progress: Progress) -> None:
        """Take in what a running attempt says through its socket."""
        self._progress.say(ref, progress)

    def _end_over_disk(self, number: int, usage: DiskUsage) -> None:
        """End an attempt that holds too much on disk; its exit tells the rest."""
        local = self._executor.by_id(number)
        if local is not None:
            local.disk_usage = usage
            self.link.send("kill", number)

    def _do(self, effect: events.Effect) -> None:
        # The three that every attempt has come first: cases are tried one after the other.
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
                self._fetch(self._assigned(ref))
            case events.Abandon(ref):
                self._preparing.end(ref)
                self._bundles.abandon(ref)
                self._inputs.abandon(ref)
            case events.Terminate(ref):
                self._command("terminate", ref)
            case events.Kill(ref):
                self._command("kill", ref)
            case events.Freeze(ref):
                self._command("freeze", ref)
            case events.Thaw(ref):
                self._command("thaw", ref)
            case events.Trust(until):
                self.link.send("trust", until)
            case events.Leave():
                self._over.set()
            case events.Rejoin():
                self._settled.set()

    def _start(self, ref: AttemptRef) -> None:
        self._preparing.end(ref)
        unpacked, assignment = self._bundles.take(ref), self._inputs.take(ref)
        if assignment is None:
            assignment = self._assigned(ref) if unpacked is None else unpacked.assignment
        failed = self._executor.start(assignment, self.link, unpacked)
        if failed is not None:
            self._exited(ref, failed)

    def _exited(self, ref: AttemptRef, end: Exit) -> None:
        """Take in an exit; one for want of what the node lacks only when servers know of that."""
        lacking = None if end.failure is None else end.failure.shortage
        if lacking is None:
            self.take(events.Exited(ref, end))
            return
        if self._shortage.current(monotonic()) is None:
            log.error("short of %s: taking no work for a while", lacking)
        self._shortage.begin(lacking, monotonic())
        self._beat_now.set()
        asyncio.get_running_loop().call_later(HAND_BACK_DELAY, self.take, events.Exited(ref, end))

    def _assigned(self, ref: AttemptRef) -> Assignment:
        assignment = self._assignment
        assert assignment is not None and assignment.ref == ref  # noqa: S101
        return assignment

    def _fetch(self, assignment: Assignment) -> None:
        """Fetch its bundle first, of which there is one for all; then its inputs."""
        ref = assignment.ref
        self._preparing.begin(ref)
        if assignment.payload.artifact is not None:
            self._bundles.fetch(assignment, self._executor.bundle_of(ref))
        else:
            self._inputs.fetch(assignment, self._executor.inputs_of(ref))

    def _unpacked(self, assignment: Assignment, refusal: Conclusion | None) -> None:
        if refusal is None and assignment.inputs_limit is not None:
            self._inputs.fetch(assignment, self._executor.inputs_of(assignment.ref))
        else:
            self._fetched(assignment.ref, refusal)

    def _fetched(self, ref: AttemptRef, refusal: Conclusion | None) -> None:
        self.take(events.Fetched(ref, refusal))

    def _measure(self, identities: list[int]) -> None:
        self.link.send("measure", identities)

    def _command(self, verb: str, ref: AttemptRef) -> None:
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

    def _answered(self, ref: AttemptRef, accepted: bool) -> None:
        if not accepted:
            log.warning("a report was stale", extra={"task": ref.task, "attempt": ref.attempt})
        self.take(events.Answered(ref))

    # The loops of one incarnation.

    async def serve(self, joined: Joined, sent_at: float, stop: asyncio.Event) -> bool:
        """Work as the incarnation that we have joined as; True means that it was told to stop.

        False means that it was fenced, and that nothing of it is left by now.
        """
        self._over.clear()
        self._settled.clear()
        for effect in self._state.begin(sent_at, joined.lease_ttl):
            self._do(effect)
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self._fence_on_refusal(loop))
                for loop in (
                    lambda: self._poll(joined.incarnation, stop),
                    lambda: self._beat(joined, stop),
                    lambda: self._reports.run(joined.incarnation),
                    lambda: self._logs.run(joined.incarnation),
                    self._progress.run,
                    self._preparing.run,
                    self._disk_watch.run,
                    lambda: self._measuring.run(joined.heartbeat_interval),
                    self._inputs.run,
                    self._bundles.run,
                    *(self._bundles.unpack,) * UNPACKERS,
                )
            ]
            loops += [group.create_task(self._tick()), group.create_task(self._stop_when(stop))]
            lost = group.create_task(self.link.lost.wait())
            over = group.create_task(self._over.wait())
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
            self.take(events.Fenced())
            self._over.set()

    async def _wait_until_settled(self) -> None:
        async with asyncio.TaskGroup() as group:
            either = [group.create_task(e.wait()) for e in (self._settled, self.link.lost)]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for task in either:
                task.cancel()
        if self.link.lost.is_set():
            raise SupervisorLost

    async def _poll(self, incarnation: int, stop: asyncio.Event) -> None:
        backoff = Backoff()
        while not stop.is_set():
            message = Poll(
                incarnation=incarnation,
                held=self._state.held,
                wait=POLL_WAIT,
                latest=self._latest,
            )
            try:
                orders = await self._gateway.call(
                    "poll", message, Orders, timeout=POLL_WAIT + POLL_SLACK
                )
            except Unavailable as error:
                log.warning("cannot poll", extra={"error": error.message})
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            is_news = self._obey(orders)
            # Before the next poll is made ready: that takes longer than the way to the supervisor.
            self.link.flush()
            # An answer to what we no longer hold, such as the order to end what has just ended, is
            # no reason to pause: a start that comes meanwhile would have to wait.
            if not is_news and self._state.held == message.held:
                await asyncio.sleep(IDLE_PAUSE)

    def _obey(self, orders: Orders) -> bool:
        """Do as we are told; False means that there was nothing that we did not know."""
        before = len(self._state.attempts)
        for stop in orders.stop:
            self.take(events.StopOrdered(stop))
        for assignment in orders.start:
            self._latest = max(self._latest, assignment.ref.token)
            self._assignment = assignment
            payload = assignment.payload
            is_fetched = assignment.inputs_limit is not None or payload.artifact is not None
            self.take(events.Assigned(assignment.ref, is_fetched))
        self._assignment = None
        return len(self._state.attempts) != before or not (orders.start or orders.stop)

    async def _beat(self, joined: Joined, stop: asyncio.Event) -> None:
        # Never longer than between two heartbeats that are answered: one whose answer is late
        # has renewed the lease all the same.
        backoff = Backoff(joined.heartbeat_interval)
        while True:
            self._beat_now.clear()
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
                    Renewed,
                    timeout=joined.lease_ttl / 3,
                    soon=joined.lease_ttl / 6,
                )
            except Unavailable as error:
                log.warning("cannot renew the lease", extra={"error": error.message})
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self.take(events.Renewed(sent_at, renewed.ttl, tuple(renewed.stop)))
            self._executor.tidy()
            pause = max(0.0, sent_at + joined.heartbeat_interval - monotonic())
            await alarm.wait_for(self._beat_now, pause)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self.take(events.Ticked())

    async def _stop_when(self, stop: asyncio.Event) -> None:
        """Once told to stop, end what runs, and wait for the last reports, but not for ever."""
        await stop.wait()
        self._beat_now.set()
        self.take(events.StopRequested())
        patience = STOP_PATIENCE
        while patience > 0:
            await asyncio.sleep(TICK)
            if all(attempt.ended for attempt in self._state.attempts.values()):
                patience -= TICK
        log.error("stopping without an answer to the last reports")
        self._over.set()

    async def _leave(self, incarnation: int) -> None:
        """Say that nothing of this incarnation runs, or is still to be reported."""
        try:
            await self._gateway.send("leave", Leave(incarnation=incarnation), timeout=LEAVE_TIMEOUT)
        except DulyError as error:
            log.warning("could not say good-bye", extra={"error": error.message})


class SupervisorLost(Exception):
    """The supervisor died; nothing on this node is under control any more."""
