"""Measures the control plane alone, from submit to durable end, with a stub agent."""

import time
from collections.abc import Iterator

from benchmarks import checks, installation, usage
from benchmarks.installation import Installation
from benchmarks.load import TRUE_TASK, Requests, send_all
from benchmarks.rig import Rig
from benchmarks.stub import Counts, stub
from benchmarks.waiting import await_empty
from duly.bench.figure import Figure, at_least, median

CLIENTS = 2
WARM_UP_TASKS = 2000


def measure(rig: Rig) -> Iterator[Figure]:
    """Submit batches to a server whose only node is a stub, until all tasks have ended."""
    sizes = rig.sizes
    with (
        rig.store() as dsn,
        installation.serve(rig.postgres, dsn) as instance,
        stub(instance) as counts,
    ):
        warm_up = min(WARM_UP_TASKS, sizes.plane)
        throughput(instance, counts, warm_up, sizes.batch)
        pids = {"server": [instance.process.pid], "postgresql": rig.postgres.pids}
        before = {name: usage.cpu(processes) for name, processes in pids.items()}
        rates = [
            throughput(instance, counts, sizes.plane, sizes.batch) for _ in range(sizes.rounds)
        ]
        spent = {name: usage.cpu(processes) - before[name] for name, processes in pids.items()}
        check(dsn, counts, warm_up + sizes.rounds * sizes.plane)
    yield Figure(
        part="plane",
        name="control plane alone, submit → durable end, a stub agent on the real wire",
        value=median(rates),
        unit="/s",
        target=at_least(8000),
    )
    tasks = sizes.rounds * sizes.plane
    for name, cpu in spent.items():
        yield Figure(
            part="plane",
            name=f"control plane, CPU per task, {name}",
            value=cpu.own / tasks * 1e6,
            unit="µs",
        )


def throughput(instance: Installation, counts: Counts, tasks: int, batch: int) -> float:
    """Return the throughput from submit to durable end, in tasks per second."""
    requests = Requests(instance.url, instance.key)
    prepared = requests.batches(tasks, TRUE_TASK, batch)
    expected = counts.accepted + tasks
    began = time.perf_counter()
    send_all(requests, prepared, CLIENTS)
    counts.wait_for(expected)
    return tasks / (time.perf_counter() - began)


def check(dsn: str, counts: Counts, tasks: int) -> None:
    """Raise CheckFailed unless all tasks are done and every report of the stub was accepted."""
    await_empty(dsn)
    checks.all_done(dsn, tasks)
    if counts.stale:
        raise checks.CheckFailed(f"{counts.stale:,} reports were refused as stale")
