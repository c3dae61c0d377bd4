"""Measures throughput and start latency, in the same way for every system.

Throughput: all tasks are submitted, and the clock stops when the last one has ended. The limit is
measured before and after each round, so that a round is compared with the machine at that moment.

Start latency: one task at a time, each after a pause in which the system is idle. The task opens a
pipe whose other end we hold, so the clock stops when its process runs; clock and process are the
same for every system.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.peers.figures import Figures, Round
from benchmarks.peers.limit import TRUE, spawn_rate
from benchmarks.peers.system import CheckFailed, System

START_TIMEOUT_SECONDS = 30.0
"""Time limit for the start of one task."""
IDLE_SECONDS = (0.02, 0.1)
"""Idle seconds before each task of the latency part: the range of a uniform distribution."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Task counts of a measurement."""

    tasks: int = 500
    rounds: int = 3
    single: int = 100
    warm_up: int = 100
    functions: int = 5000
    """Calls of a function that does nothing, in a round."""


def measure(system: System, workload: Workload) -> Figures:
    """Prepare `system`, measure it, check that every task ran once, and stop it."""
    numbers = Numbers()
    functions, function_latencies = [], []
    try:
        system.prepare()
        run_all(system, numbers.take(workload.warm_up))
        measured = [
            _measure_round(system, numbers.take(workload.tasks)) for _ in range(workload.rounds)
        ]
        latencies = start_latencies(
            system,
            numbers.take(workload.single),
            lambda single, pipe: system.submit(single, ["/bin/sh", "-c", f": >{pipe}"]),
        )
        if system.calls_functions:
            system.prepare_functions()
            call_all(system, numbers.take(workload.warm_up))
            functions = [
                call_all(system, numbers.take(workload.functions)) for _ in range(workload.rounds)
            ]
            function_latencies = start_latencies(system, numbers.take(workload.single), system.call)
        system.check(numbers.taken)
    finally:
        system.stop()
    return Figures(
        tuple(measured),
        tuple(latencies),
        numbers.taken,
        tuple(functions),
        tuple(function_latencies),
    )


class Numbers:
    """The numbers of tasks, each given once."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, count: int) -> range:
        """Return the next `count` numbers."""
        self.taken += count
        return range(self.taken - count, self.taken)


def call_all(system: System, numbers: range) -> float:
    """Call the function for each of `numbers`, and return the calls per second."""
    began = time.monotonic()
    system.call(numbers)
    system.wait(numbers)
    return len(numbers) / (time.monotonic() - began)


def run_all(system: System, numbers: range) -> None:
    """Run /bin/true for each of `numbers`."""
    system.submit(numbers, [TRUE])
    system.wait(numbers)


def _measure_round(system: System, numbers: range) -> Round:
    """Measure between two measurements of the limit, because the load of the machine varies."""
    limit_before = spawn_rate(2 * len(numbers))
    began = time.monotonic()
    run_all(system, numbers)
    rate = len(numbers) / (time.monotonic() - began)
    return Round(rate, limit=(limit_before + spawn_rate(2 * len(numbers))) / 2)


def start_latencies(
    system: System, numbers: range, submit: Callable[[range, str], None]
) -> list[float]:
    """Return the milliseconds from just before each submit until the task opens a pipe."""
    pipe = system.context.folder / "started"
    if not pipe.exists():
        os.mkfifo(pipe)
        pipe.chmod(0o666)  # A system may run tasks as another user.
    rng = Random(len(numbers))
    milliseconds = []
    for number in numbers:
        time.sleep(rng.uniform(*IDLE_SECONDS))
        opening = PipeOpening(pipe)
        began = time.monotonic()
        submit(range(number, number + 1), str(pipe))
        milliseconds.append((opening.at() - began) * 1000)
        system.wait(range(number, number + 1))
    return milliseconds


class PipeOpening:
    """Waits in a thread until a pipe is opened for writing."""

    def __init__(self, pipe: Path) -> None:
        self._pipe = pipe
        self._at = 0.0
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        descriptor = os.open(self._pipe, os.O_RDONLY)
        self._at = time.monotonic()
        os.close(descriptor)

    def at(self) -> float:
        """Return when the pipe was opened."""
        self._thread.join(START_TIMEOUT_SECONDS)
        if self._thread.is_alive():
            raise CheckFailed(f"a task had not started after {START_TIMEOUT_SECONDS:.0f} s")
        return self._at
