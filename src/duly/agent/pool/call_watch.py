"""Watches the calls of a worker: caps, grace periods, logs, and what waits behind a busy process.

The start of a call is read from memory that its process shares, so a call costs no message for it.
"""

import asyncio
from collections.abc import Callable, Iterable

from duly import timers
from duly.agent.executor import Listener
from duly.agent.pool.distributor import Distributor
from duly.agent.pool.function_attempt import FunctionAttempt
from duly.agent.pool.messages import End, Follow, Silence
from duly.agent.pool.pace import WAITING_SECONDS, Pace, is_worth_telling
from duly.agent.pool.process_pool import ProcessPool
from duly.agent.pool.warm_process import WarmProcess
from duly.clock import monotonic

LOOK_SECONDS = 0.05
"""Seconds between two looks while calls wait."""
REST_SECONDS = 0.25
"""Seconds between two looks while calls only run."""
BLOCKED_SECONDS = 0.1
"""Seconds that a call runs until what waits behind it goes to other processes."""
LOG_SECONDS = 1.0
"""Seconds between two looks at the output of a call."""
TELL_SECONDS = 0.2
"""Seconds between two heartbeats because of slots."""


class CallWatch:
    """Looks at the calls from time to time, while there are any."""

    def __init__(self, pool: ProcessPool, distributor: Distributor, pace: Pace) -> None:
        self._pool = pool
        self._distributor = distributor
        self._pace = pace
        self._busy_lanes = 0
        self._told = 0
        """The slots that the servers know of."""
        self._told_at = self._logged_at = float("-inf")
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Look soon: there is a call."""
        self._nudged.set()

    def offer(self) -> int:
        """Return the slots that a heartbeat offers now."""
        self._told, self._told_at = self.slots, monotonic()
        return self._told

    @property
    def slots(self) -> int:
        """The slots that should be offered now."""
        return self._pace.offer(self._pool.lanes, self._busy_lanes)

    async def run(self, listener: Listener, live: Callable[[], int]) -> None:
        """Look until cancelled; `live` returns how many attempts have not ended."""
        while True:
            if not live():
                self._busy_lanes = 0
                self._tell(listener, monotonic(), [])
                self._nudged.clear()
                if not live():
                    await self._nudged.wait()
                await asyncio.sleep(LOOK_SECONDS)
            now = monotonic()
            due = self._look(now)
            self._tell(listener, now, self.excess(live(), now))
            if now - self._logged_at >= LOG_SECONDS:
                self._logged_at = now
                self._follow(listener, now)
            self._nudged.clear()
            await timers.wait_for(self._nudged, max(0.001, min(due - now, self._pause())))

    def _pause(self) -> float:
        is_waiting = self._distributor.waiting or any(
            call.begun_at is None for one in self._pool.all for call in one.calls.values()
        )
        return LOOK_SECONDS if is_waiting else REST_SECONDS

    def _look(self, now: float) -> float:
        """Do what is due, and return when something is due next."""
        busy, due = 0, float("inf")
        for process in self._pool.all:
            running, waiting = _sort(process)
            busy += sum(now - (call.begun_at or now) >= WAITING_SECONDS for call in running)
            for call in running:
                due = min(due, self._end_overdue(process, call, now))
            youngest = max((call.begun_at or now for call in running), default=now)
            process.is_blocked = bool(waiting) and now - youngest >= BLOCKED_SECONDS
            if process.is_blocked or process.is_retiring:
                withdraw(process, waiting)
        self._busy_lanes = busy
        return due

    def _end_overdue(self, process: WarmProcess, call: FunctionAttempt, now: float) -> float:
        """End a running call that has reached its cap, or has not heeded its interruption."""
        assert call.begun_at is not None  # noqa: S101
        if call.kill_at is None:
            cap_at = call.begun_at + call.execution_cap
            if now < cap_at:
                return cap_at
            call.is_capped = True
            call.kill_at = now + call.assignment.grace
            process.send(End(call.number, only_withdraw=False))
        if now < call.kill_at or call.is_killed:
            return call.kill_at if now < call.kill_at else float("inf")
        call.is_killed = True
        self._pool.kill(process)
        return float("inf")

    def _follow(self, listener: Listener, now: float) -> None:
        """Tell of new output of calls that run for long, and bound it."""
        for process in self._pool.all:
            for call in process.calls.values():
                if call.begun_at is None or now - call.begun_at < LOG_SECONDS:
                    continue
                if process.captures:
                    self._bound(process, call)
                elif not call.is_followed:
                    call.is_followed = True
                    process.send(Follow(call.number))
                size = min(call.written(), call.assignment.log_limit)
                if size > call.log_size:
                    listener.written(call, size)

    def _bound(self, process: WarmProcess, call: FunctionAttempt) -> None:
        """Have the process drop what a call writes beyond its limit."""
        if call.written() > call.assignment.log_limit and not call.is_silenced:
            call.is_silenced = True
            process.send(Silence(call.number))

    def excess(self, live: int, now: float) -> list[FunctionAttempt]:
        """Return the calls to hand back: they have waited for long, and more are here than slots.

        Those that would be served last come first.
        """
        number = live - self.slots
        waiting = self._distributor.waiting
        if number <= 0 or not waiting:
            return []
        late = [
            call for call in reversed(waiting.values()) if now - call.assigned_at >= WAITING_SECONDS
        ]
        return late[:number]

    def _tell(self, listener: Listener, now: float, excess: list[FunctionAttempt]) -> None:
        if now - self._told_at >= TELL_SECONDS and is_worth_telling(
            self.slots, self._told, has_excess=bool(excess)
        ):
            self._told_at = now
            listener.heartbeat_soon()

    def to_hand_back(self, live: int) -> list[FunctionAttempt]:
        """Return the calls to hand back, if the servers know of the slots that there are."""
        return self.excess(live, monotonic()) if self._told <= self.slots else []


def _sort(process: WarmProcess) -> tuple[list[FunctionAttempt], list[FunctionAttempt]]:
    """Return the calls that run in a process, and those that wait there."""
    running: list[FunctionAttempt] = []
    waiting: list[FunctionAttempt] = []
    for call in process.calls.values():
        if call.begun_at is None:
            call.begun_at = process.ring.begun_at(call.number)
        (waiting if call.begun_at is None else running).append(call)
    return running, waiting


def withdraw(process: WarmProcess, calls: Iterable[FunctionAttempt]) -> None:
    """Take calls back from a process, unless it begins them first."""
    for call in calls:
        if not call.is_withdrawing:
            call.is_withdrawing = True
            process.send(End(call.number, only_withdraw=True))
