"""Measures Duly beside what the machine can do, in one run: what counts is the ratio."""

import argparse
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from throwaway import Throwaway

import duly

SMALL = {"cpu": 0.1, "memory_mb": 16, "disk_mb": 1}
CLIENTS = 16
WARM, ONE_BY_ONE = 50, 100


def rate(count: int, work: Callable[[], None]) -> float:
    """Return how many of `count` things are done in a second by `work`."""
    before = time.monotonic()
    work()
    return count / (time.monotonic() - before)


def spawn(count: int) -> None:
    """Start /bin/true `count` times, from two processes."""
    halves = [multiprocessing.Process(target=spawn_singly, args=(count // 2,)) for _ in range(2)]
    for half in halves:
        half.start()
    for half in halves:
        half.join()


def spawn_singly(count: int) -> None:
    """Start /bin/true `count` times, one after the other."""
    for _ in range(count):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def run_all(client: duly.Client, count: int) -> None:
    """Run `count` times /bin/true, from the batch that submits them to the last end."""
    client.submit_many({"command": ["/bin/true"], "resources": SMALL} for _ in range(count))
    busy = True
    while busy:
        time.sleep(0.02)
        counts = client.status()["tasks"]
        busy = counts["waiting"] + counts["running"] > 0


def submit_singly(client: duly.Client, count: int) -> None:
    """Submit from many clients at once, one task in a request; none of them is due yet."""

    def some() -> None:
        with duly.Client(client.endpoint.urls[0], client.endpoint.key) as own:
            for _ in range(count // CLIENTS):
                own.submit(command=["true"], run_at="2099-01-01T00:00:00Z")

    threads = [threading.Thread(target=some) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def latencies(client: duly.Client, count: int) -> list[float]:
    """Return the milliseconds from sending a submit to hearing of the end, one at a time."""
    taken = []
    for _ in range(count):
        before = time.monotonic()
        task = client.submit(command=["/bin/true"], resources=SMALL)
        client.wait(task["id"], timeout=60)
        taken.append((time.monotonic() - before) * 1000)
    return sorted(taken)


def check(client: duly.Client, expected: int) -> None:
    """Make sure that every task that was due ran, each exactly once."""
    ended = [task for task in client.iter_tasks() if task["status"] != "scheduled"]
    odd = [task["id"] for task in ended if (task["status"], task["attempt"]) != ("done", 1)]
    if odd or len(ended) != expected:
        raise SystemExit(f"{len(ended)} of {expected} tasks ended; not as they should: {odd[:5]}")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2000, help="how many tasks in each part")
    count: int = parser.parse_args().tasks
    table = Table("what", "figure", "of the limit", title=f"{count} tasks in each part")
    with Throwaway({}) as place, duly.Client(place.url, place.key) as client:
        run_all(client, WARM)
        limit = rate(count, lambda: spawn(count))
        table.add_row("posix_spawn of /bin/true, 2 processes", f"{limit:,.0f}/s", "100 %")
        done = rate(count, lambda: run_all(client, count))
        table.add_row("/bin/true from submit to done", f"{done:,.0f}/s", f"{done / limit:.0%}")
        single = rate(count, lambda: submit_singly(client, count))
        table.add_row(f"single submits, {CLIENTS} threads of one client", f"{single:,.0f}/s", "")
        taken = latencies(client, ONE_BY_ONE)
        middle, late = statistics.median(taken), taken[int(len(taken) * 0.99)]
        table.add_row("one at a time, submit to done", f"{middle:.1f} ms", f"p99 {late:.1f} ms")
        check(client, WARM + count + ONE_BY_ONE)
    Console().print(table)


if __name__ == "__main__":
    main()
