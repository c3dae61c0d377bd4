"""Runs calls: gives them to warm processes, and ends those that must end.

A call waits here until a process has room, so that any process can take it, and a few wait in each
process, so that it never idles. What waits behind a function that runs for long comes back, to go
to another process, or to another worker as an attempt that has not begun.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from duly.agent.executor import Listener, Loop
from duly.agent.local_attempt import name_of, report_of
from duly.agent.pool.argument_fetcher import ArgumentFetcher
from duly.agent.pool.attempt_calls import AttemptCalls
from duly.agent.pool.call_watch import CallWatch, withdraw
from duly.agent.pool.distributor import Distributor
from duly.agent.pool.function_attempt import FunctionAttempt
from duly.agent.pool.messages import Ask, CallThrottled, End, Ended, Said, ToSession, Withdrawn
from duly.agent.pool.pace import Pace
from duly.agent.pool.process_pool import PoolOptions, ProcessPool
from duly.agent.pool.warm_process import WarmProcess
from duly.agent.supervision.outcome import Conclusion, Exit
from duly.agent.supervision.supervisor_link import SupervisorLink
from duly.clock import monotonic
from duly.model.progress import Progress
from duly.wire import Assignment, AttemptRef, AttemptReport, Throttled

NEVER_BEGUN = Exit(code=None, never_begun=True)
WITHDRAWAL_SECONDS = 1.0
"""Seconds that a process may take to give back a call that was not to begin."""


class FunctionExecutor:
    """The executor of a worker; `link` is set before anything starts."""

    def __init__(
        self,
        options: PoolOptions,
        work: Path,
        spool: Path,
        fetcher: ArgumentFetcher,
        attempt_calls: AttemptCalls,
    ) -> None:
        self.pool = ProcessPool(
            options,
            work,
            spool,
            on_change=self._on_change,
            on_message=self._on_message,
            on_gone=self._on_gone,
        )
        self._fetcher = fetcher
        self._attempt_calls = attempt_calls
        self._spool = str(spool)
        self._pace = Pace()
        self._distributor = Distributor(self.pool, self._pace)
        self._watch = CallWatch(self.pool, self._distributor, self._pace)
        self._listener: Listener
        self._by_ref: dict[AttemptRef, FunctionAttempt] = {}
        self._by_id: dict[int, FunctionAttempt] = {}
        self._last_id = 0
        self.is_paused = False
        """Offer no slots: the worker is about to join anew."""

    @property
    def link(self) -> SupervisorLink:
        """The connection to the supervisor."""
        return self.pool.link

    @link.setter
    def link(self, link: SupervisorLink) -> None:
        self.pool.link = link
        self.lost = link.lost

    def connect(self, listener: Listener) -> None:
        """Tell `listener` what happens from now on."""
        self._listener = listener
        self._fetcher.on_fetched = listener.fetched

    def loops(self) -> Sequence[Loop]:
        """Return the loop that watches calls, and the one that fetches what they need."""
        return (
            lambda: self._watch.run(self._listener, lambda: len(self._by_id)),
            self._fetcher.run,
        )

    @property
    def slots(self) -> int:
        """The slots to join with."""
        return self._watch.slots

    def offer(self) -> int | None:
        """Return the slots that the next heartbeat offers."""
        offered = self._watch.offer()
        return 0 if self.is_paused else offered

    def needs_fetch(self, assignment: Assignment) -> bool:
        """Return True if it has large arguments, or results of upstream tasks in them."""
        return assignment.inputs_limit is not None or assignment.payload.artifact is not None

    def fetch(self, assignment: Assignment) -> None:
        """Fetch the arguments and the results."""
        self._fetcher.fetch(assignment)

    def abandon(self, ref: AttemptRef) -> None:
        """Stop fetching."""
        self._fetcher.take(ref)

    def start(self, ref: AttemptRef, assignment: Assignment | None) -> Exit | None:
        """Let a call wait for a process."""
        fetched = self._fetcher.take(ref)
        if assignment is None:
            assert fetched is not None  # noqa: S101
            assignment = fetched.assignment
        call = assignment.payload.call
        if call is None or call.function not in self.pool.functions:
            return NEVER_BEGUN
        self._last_id += 1
        attempt = FunctionAttempt(
            ref,
            self._last_id,
            f"{self._spool}/{name_of(ref)}",
            assignment.execution_cap,
            assignment.result_limit,
            assignment.tenant,
            assignment.payload.uses,
            assignment=assignment,
            function=call.function,
            arguments=call.arguments.encode() if fetched is None else fetched.arguments,
            inputs={} if fetched is None else fetched.inputs,
        )
        self._by_ref[ref] = self._by_id[attempt.id] = attempt
        self._distributor.add(attempt)
        self._watch.nudge()
        return None

    def terminate(self, ref: AttemptRef) -> None:
        """Withdraw a call, or interrupt it and kill its process after the grace period."""
        self._end(ref, self._by_ref[ref].assignment.grace)

    def kill(self, ref: AttemptRef) -> None:
        """Withdraw a call, or kill its process."""
        attempt = self._by_ref[ref]
        process = attempt.process
        if process is not None and process.ring.begun_at(attempt.number) is not None:
            attempt.is_killed = True
            self.pool.kill(process)
        else:
            self._end(ref, WITHDRAWAL_SECONDS)

    def _end(self, ref: AttemptRef, grace: float) -> None:
        attempt = self._by_ref[ref]
        attempt.kill_at = monotonic() + grace
        if attempt.process is not None:
            attempt.process.send(End(attempt.number, only_withdraw=False))
            self._watch.nudge()
        elif self._distributor.discard(attempt):
            self._end_unbegun(attempt)

    def freeze(self, ref: AttemptRef) -> None:
        """Suspend the process that has the call."""
        process = self._by_ref[ref].process
        if process is not None:
            self.link.send("freeze", process.id)

    def thaw(self, ref: AttemptRef) -> None:
        """Resume the process that has the call."""
        process = self._by_ref[ref].process
        if process is not None:
            self.link.send("thaw", process.id)

    def trust(self, until: float) -> None:
        """Have the supervisor let the processes run until then."""
        self.link.send("trust", until)

    def flush(self) -> None:
        """Give new calls to processes now."""
        self._distributor.give()

    def measure(self, numbers: list[int]) -> None:
        """Tell when calls have begun; what they use is only known at their end."""
        found = [self._by_id[number] for number in numbers if number in self._by_id]
        samples = [(one.id, one.begun_at, None, None) for one in found if one.begun_at is not None]
        self._listener.measured(samples)

    @property
    def running(self) -> Collection[FunctionAttempt]:
        """The attempts that have not ended."""
        return self._by_id.values()

    def by_id(self, number: int) -> FunctionAttempt | None:
        """Return the attempt with this number, unless it has ended."""
        return self._by_id.get(number)

    def find(self, ref: AttemptRef) -> FunctionAttempt:
        """Return the attempt, which must have been started and not forgotten."""
        return self._by_ref[ref]

    def report(self, ref: AttemptRef, conclusion: Conclusion) -> AttemptReport:
        """Build the report of an attempt that has ended."""
        attempt = self._by_ref.get(ref)
        report = report_of(ref, conclusion, attempt)
        if attempt is not None:
            report.retry_after, report.gives_up = attempt.retry_after, attempt.gives_up
        return report

    def ended_at(self, ref: AttemptRef) -> float | None:
        """Return the monotonic time at which the attempt ended; None if it never began."""
        attempt = self._by_ref.get(ref)
        return None if attempt is None else attempt.ended_at

    def forget(self, ref: AttemptRef) -> None:
        """Drop what is kept of an attempt whose report was answered."""
        self._attempt_calls.forget(ref)
        attempt = self._by_ref.pop(ref, None)
        if attempt is not None:
            attempt.remove_log()

    def renewed(self) -> None:
        """Hand back the calls that wait for too long, now that servers send fewer."""
        for attempt in self._watch.to_hand_back(len(self._by_id)):
            if self._distributor.discard(attempt):
                self._end_unbegun(attempt)

    # What the processes tell.

    def _on_change(self) -> None:
        for process in self.pool.all:
            if process.is_retiring:
                withdraw(process, [one for one in process.calls.values() if one.begun_at is None])
        self._distributor.soon()

    def _on_message(self, process: WarmProcess, message: ToSession) -> None:
        if isinstance(message, Ended):
            self._on_ended(process, message)
            return
        attempt = process.calls.get(getattr(message, "number", 0))
        if attempt is None:
            return
        match message:
            case Withdrawn():
                del process.calls[message.number]
                self._take_back(attempt)
                self.pool.quit_if_done(process)
            case Said(_, fraction, text):
                self._listener.reported(attempt, Progress(fraction, text))
            case CallThrottled(_, key, retry_after):
                self._listener.reported(attempt, Throttled(key, retry_after))
            case Ask():
                self._attempt_calls.answer(attempt.ref, message, process.send)

    def _on_ended(self, process: WarmProcess, ended: Ended) -> None:
        attempt = process.calls.pop(ended.number, None)
        if attempt is None:
            return
        if ended.spooled_as:
            process.leave_file()
        exit_ = attempt.end(ended)
        self._pace.add(attempt.ran or 0.0)
        del self._by_id[attempt.id]
        self.pool.completed(process, ended.peak_bytes)
        self.pool.quit_if_done(process)
        self._listener.exited(attempt.ref, exit_)
        self._distributor.soon()

    def _take_back(self, attempt: FunctionAttempt) -> None:
        """Let a call that has not begun wait again, unless it was to end."""
        if attempt.kill_at is None and attempt.function in self.pool.functions:
            self._distributor.add_back(attempt)
        else:
            self._end_unbegun(attempt)

    def _end_unbegun(self, attempt: FunctionAttempt) -> None:
        del self._by_id[attempt.id]
        self._listener.exited(attempt.ref, NEVER_BEGUN)

    def _on_gone(self, process: WarmProcess, event: dict[str, Any]) -> None:
        """End the calls that have begun in a process that has died; the others go elsewhere."""
        # The supervisor stops it by itself when the lease is over and it cannot be frozen.
        is_kill = process.is_killed or bool(event.get("stopped"))
        for attempt in reversed(list(process.calls.values())):
            attempt.begun_at = process.ring.begun_at(attempt.number)
            if attempt.begun_at is None:
                self._take_back(attempt)
                continue
            exit_ = attempt.end_with_process(event, is_kill=is_kill)
            del self._by_id[attempt.id]
            self._listener.exited(attempt.ref, exit_)
        process.calls.clear()
