"""The local state of an attempt at calling a function, and what its end means."""

import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duly.agent.local_attempt import LocalAttempt, read_spool
from duly.agent.pool.messages import Ended, Run
from duly.agent.supervision.outcome import Conclusion, Exit
from duly.model.task import Outcome, Reason, Usage
from duly.wire import NEIGHBOR_KILLED, Assignment

if TYPE_CHECKING:
    from duly.agent.pool.warm_process import WarmProcess

PROCESS_KILLED = Conclusion(
    Outcome.PREEMPTED,
    Reason(NEIGHBOR_KILLED, "Its process was killed because of another call that ran there."),
)


@dataclass(slots=True, kw_only=True)
class FunctionAttempt(LocalAttempt):
    """An attempt at calling a function."""

    assignment: Assignment
    function: str
    arguments: bytes
    inputs: dict[str, bytes] = field(default_factory=dict)
    process: "WarmProcess | None" = None
    """Where it runs or waits; None while any process could take it."""
    number: int = 0
    """Its number in that process: another one each time that it is given to a process."""
    begun_at: float | None = None
    kill_at: float | None = None
    """When to kill its process, unless it has ended before."""
    is_capped: bool = False
    is_killed: bool = False
    """Its process is being killed because of it."""
    is_withdrawing: bool = False
    is_silenced: bool = False
    is_followed: bool = False
    retry_after: float | None = None
    gives_up: bool = False

    def run_message(self, number: int) -> Run:
        """Return the message that has a process run it."""
        assignment, ref = self.assignment, self.ref
        return Run(
            number=number,
            function=self.function,
            arguments=self.arguments,
            task=ref.task,
            attempt=ref.attempt,
            name=self.function,
            cap=self.execution_cap,
            log_limit=assignment.log_limit,
            result_limit=self.result_limit,
            inputs=self.inputs,
            spool=self.spool,
            uses=self.uses,
        )

    def read_log(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes of its output, which is in its process's file while it runs."""
        found = read_spool(self._file, offset, size)
        return found if self._is_own_file() else b""

    def written(self) -> int:
        """Return how many bytes its file has so far."""
        path = Path(self._file)
        size = path.stat().st_size if path.exists() else 0
        return size if self._is_own_file() else 0

    @property
    def _file(self) -> str:
        process = self.process
        if self.ended_at is None and process is not None and process.captures:
            return process.capture_path
        return self.spool

    def _is_own_file(self) -> bool:
        """Return False if the next call in its process writes to that file already."""
        process = self.process
        if self.ended_at is not None or process is None or not process.captures:
            return True
        return process.ring.latest() == self.number

    def end(self, ended: Ended) -> Exit:
        """Take over what its process tells of its end."""
        self._measure(ended.began_at, ended.ended_at)
        assert self.ran is not None  # noqa: S101
        self.usage = Usage(ended.cpu_seconds, round(ended.peak_bytes / 2**20, 3), self.ran)
        self.log_size = ended.log_size
        self.log = ended.log
        if ended.spooled_as:
            self.log, self.spool = None, ended.spooled_as
        self.result = ended.result
        self.retry_after, self.gives_up = ended.retry_after, ended.gives_up
        conclusion = Conclusion(Outcome.SUCCEEDED)
        if ended.result is None:
            conclusion = Conclusion(
                Outcome.FAILED, Reason(ended.code, ended.message, ended.details)
            )
        return self._exit(code=None, stopped=ended.is_interrupted, conclusion=conclusion)

    def end_with_process(self, event: dict[str, Any], *, is_kill: bool) -> Exit:
        """Take over how the process ended in which it was running."""
        assert self.begun_at is not None  # noqa: S101
        self._keep_log()
        self._measure(self.begun_at, event.get("ended_at") or self.begun_at)
        assert self.ran is not None  # noqa: S101
        peak = (event.get("peak_memory") or 0) / 2**20
        self.usage = Usage(0.0, round(peak, 3), self.ran)
        code = event.get("code")
        if event.get("out_of_memory"):
            return self._exit(code=code, out_of_memory=True, peak_memory_mb=peak)
        if self.is_killed:
            return self._exit(code=code, stopped=True)
        if is_kill:
            return self._exit(code=code, stopped=True, conclusion=PROCESS_KILLED)
        return self._exit(code=code, conclusion=_died(code))

    def _keep_log(self) -> None:
        """Keep the output of a process that has died."""
        self.log_size = min(self.written(), self.assignment.log_limit)
        if not self.log_size:
            return
        self.spool, process = self._file, self.process
        self.log = None
        if process is not None:
            process.leave_file()

    def _measure(self, began_at: float, ended_at: float) -> None:
        self.begun_at, self.ended_at = began_at, ended_at
        self.ran = max(0.0, ended_at - began_at)

    def _exit(self, **how: Any) -> Exit:
        is_capped = self.is_capped and how.get("stopped", False)
        memory = 0 if self.process is None else self.process.memory_mb
        return Exit(
            ran=self.ran,
            execution_cap=self.execution_cap,
            memory_mb=memory,
            capped=is_capped,
            **how,
        )


def _died(code: int | None) -> Conclusion:
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        message, details = f"Its process was killed by {name}.", {"signal": -code}
        return Conclusion(Outcome.FAILED, Reason("process_died", message, details), 128 - code)
    message, details = f"Its process exited with code {code}.", {"exit_code": code or 0}
    return Conclusion(Outcome.FAILED, Reason("process_died", message, details), code)
