"""Shared by all queues of Python functions: the function, the workers, the ledger.

The function is what a user of such a queue would write to run a command.
"""

import os
import signal
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers import ledger
from benchmarks.peers.system import CheckFailed, Context, System

TIMEOUT_SECONDS = 90.0
"""Time limit for a round."""
POLL_INTERVAL_SECONDS = 0.002
STOP_TIMEOUT_SECONDS = 15.0
LEDGER = "ledger"
OPEN = "open"
"""Instead of a program: open the file that follows."""


def run_task(ledger_file: Path, number: int, command: list[str]) -> None:
    """Run a command, if there is one, or open the pipe that OPEN names; then record the number."""
    if command[:1] == [OPEN]:
        os.close(os.open(command[1], os.O_WRONLY))
    elif command:
        subprocess.run(command, check=True)
    ledger.record(ledger_file, number)


class PythonQueue(System):
    """A queue whose workers are processes that call a Python function for each task."""

    calls_functions = True
    workers = 1
    """The number of worker processes to start; each may have children of its own."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._ledger = context.folder / LEDGER
        self._processes: list[subprocess.Popen[bytes]] = []

    @abstractmethod
    def work(self) -> None:
        """Run tasks until stopped. Called in a worker process."""

    def function(self) -> Callable[[int, list[str]], None]:
        """Return the function that the queue calls for each task."""
        ledger_file = self._ledger

        def run(number: int, command: list[str]) -> None:
            run_task(ledger_file, number, command)

        return run

    def call(self, numbers: range, pipe: str = "") -> None:
        """Submit tasks without a command."""
        self.submit(numbers, [OPEN, pipe] if pipe else [])

    def worker_command(self) -> list[str]:
        """Return the command that starts a worker."""
        return [sys.executable, "-m", "benchmarks.peers.work", self.about.name]

    def prepare(self) -> None:
        """Start the workers; their output goes to the log of the measurement."""
        for _ in range(self.workers):
            self._processes.append(
                subprocess.Popen(self.worker_command(), stdin=subprocess.DEVNULL)
            )

    def wait(self, numbers: range) -> None:
        """Wait until the ledger has a line for each of `numbers`."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while ledger.count(self._ledger) < numbers.stop:
            if any(process.poll() is not None for process in self._processes):
                raise CheckFailed("a worker ended unexpectedly")
            if time.monotonic() > deadline:
                done = ledger.count(self._ledger)
                raise CheckFailed(
                    f"{done} of {numbers.stop} tasks ended in {TIMEOUT_SECONDS:.0f} s"
                )
            time.sleep(POLL_INTERVAL_SECONDS)

    def check(self, total: int) -> None:
        """Compare the ledger with the submitted tasks."""
        ledger.check(self._ledger, total)

    def stop(self) -> None:
        """Terminate the workers, and kill those that do not end in time."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                # Its children are in our session, which is killed as a whole at the end.
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
