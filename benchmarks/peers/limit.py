"""Measures the limit of the machine: /bin/true by posix_spawn from two processes."""

import multiprocessing
import os
import time

PROCESSES = 2
TRUE = "/bin/true"


def spawn_rate(count: int) -> float:
    """Return how many /bin/true per second two processes can spawn and wait for."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(PROCESSES + 1)
    share = count // PROCESSES
    processes = [context.Process(target=_spawn, args=(share, barrier)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    barrier.wait(timeout=10)
    before = time.monotonic()
    for process in processes:
        process.join()
    return share * PROCESSES / (time.monotonic() - before)


def _spawn(count: int, barrier: "multiprocessing.synchronize.Barrier") -> None:
    barrier.wait(timeout=10)
    for _ in range(count):
        os.waitpid(os.posix_spawn(TRUE, [TRUE], {}), 0)
