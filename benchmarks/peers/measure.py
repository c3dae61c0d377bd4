"""Measures throughput and start latency, in the same way for every system.

Throughput: all tasks are handed in, and the clock stops when the last one has ended. The
limit is measured anew before and after each round, so that a round is compared with the
machine as it was at that moment.

Start latency: one task at a time, each after a pause in which the system is idle. The task
opens a pipe that we hold the other end of, so the clock stops when its process runs, and it
is the same clock, in the same process, for every system.
"""

import os
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

from benchmarks.peers.figures import Figures, Round
from benchmarks.peers.limit import TRUE, spawn_rate
from benchmarks.peers.system import System, Wrong

START_PATIENCE = 30.0
"""Seconds that one task may take to start."""
PAUSE = (0.02, 0.1)
"""Seconds of idleness before each task of the latency part, drawn evenly."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    tasks: int = 500
    rounds: int = 3
    single: int = 100
    warm: int = 100


def measure(system: System, extent: Extent) -> Figures:
    """Prepare `system`, measure it, make sure that it did everything once, and stop it."""
    bounds = [0, extent.warm]
    bounds += [bounds[-1] + extent.tasks * (each + 1) for each in range(extent.rounds)]
    warm, *rounds = (range(*pair) for pair in pairwise(bounds))
    singles = range(bounds[-1], bounds[-1] + extent.single)
    try:
        system.prepare()
        run_all(system, warm)
        measured = [_round(system, numbers) for numbers in rounds]
        latencies = start_latencies(system, singles)
        system.check(singles.stop)
    finally:
        system.stop()
    return Figures(tuple(measured), tuple(latencies), checked=singles.stop)


def run_all(system: System, numbers: range) -> None:
    """Run /bin/true for each of `numbers`."""
    system.submit(numbers, [TRUE])
    system.wait(numbers)


def _round(system: System, numbers: range) -> Round:
    """Measure between two looks at the limit: other guests of the machine come and go."""
    earlier = spawn_rate(2 * len(numbers))
    before = time.monotonic()
    run_all(system, numbers)
    rate = len(numbers) / (time.monotonic() - before)
    return Round(rate, limit=(earlier + spawn_rate(2 * len(numbers))) / 2)


def start_latencies(system: System, numbers: range) -> list[float]:
    """Return the milliseconds from before each submit to when the task's process ran."""
    pipe = system.place.folder / "started"
    os.mkfifo(pipe)
    pipe.chmod(0o666)  # A system may run tasks as another user than us.
    dice = Random(len(numbers))
    taken = []
    for number in numbers:
        time.sleep(dice.uniform(*PAUSE))
        opened = Opening(pipe)
        before = time.monotonic()
        system.submit(range(number, number + 1), ["/bin/sh", "-c", f": >{pipe}"])
        taken.append((opened.at() - before) * 1000)
        system.wait(range(number, number + 1))
    return taken


class Opening:
    """Waits, in a thread of its own, for somebody to open a pipe for writing."""

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
        """Return when it happened."""
        self._thread.join(START_PATIENCE)
        if self._thread.is_alive():
            raise Wrong(f"a task had not started after {START_PATIENCE:.0f} s")
        return self._at
