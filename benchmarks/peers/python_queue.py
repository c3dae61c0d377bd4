"""Shared by all queues of Python functions: the function, its workers, its ledger.

The function is what a user of such a queue would write to run a command.
"""

import os
import signal
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Callable

from benchmarks.peers import ledger
from benchmarks.peers.system import Place, System, Wrong

PATIENCE = 90.0
"""Seconds that a part of the measurement may take."""
GLANCE = 0.002
"""Seconds between two looks at the size of the ledger."""
STOP_PATIENCE = 15.0
KEEP_AWAY = ("PEERS_", "PG")


class PythonQueue(System):
    """A queue whose workers are processes that call a Python function for each task."""

    workers = 1
    """How many worker processes are started by us; each may have children of its own."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._ledger = place.folder / "ledger"
        self._processes: list[subprocess.Popen[bytes]] = []

    @abstractmethod
    def work(self) -> None:
        """Run tasks until told to stop. Called in a worker process of its own."""

    def function(self) -> Callable[[int, list[str]], None]:
        """Return the function that the queue calls for each task."""
        book = self._ledger

        def run(number: int, command: list[str]) -> None:
            subprocess.run(command, check=True)
            ledger.enter(book, number)

        return run

    def worker_command(self) -> list[str]:
        """Return how a worker is started."""
        return [sys.executable, "-m", "benchmarks.peers.work", self.about.name]

    def prepare(self) -> None:
        """Start the workers; what they say goes to the log of the measurement."""
        for _ in range(self.workers):
            self._processes.append(
                subprocess.Popen(self.worker_command(), stdin=subprocess.DEVNULL)
            )

    def wait(self, numbers: range) -> None:
        """Watch the ledger grow to the last of `numbers`."""
        until = time.monotonic() + PATIENCE
        while ledger.count(self._ledger) < numbers.stop:
            if any(process.poll() is not None for process in self._processes):
                raise Wrong("a worker ended by itself")
            if time.monotonic() > until:
                done = ledger.count(self._ledger)
                raise Wrong(f"{done} of {numbers.stop} tasks ended in {PATIENCE:.0f} s")
            time.sleep(GLANCE)

    def check(self, total: int) -> None:
        """Compare the ledger with what was submitted."""
        ledger.check(self._ledger, total)

    def stop(self) -> None:
        """End the workers politely, and those that do not go, with all of their children."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                # Its children are in our session, which ends with us.
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
