"""Measures the control plane alone, from submit to durable end, with an agent that runs nothing."""

import time
from collections.abc import Iterator

from benchmarks import checks, installation, usage
from benchmarks.installation import Installation
from benchmarks.load import TRUE, Requests, send_all
from benchmarks.rig import Rig
from benchmarks.stub import Counts, stub
from benchmarks.waiting import await_empty
from duly.bench.figure import Figure, at_least, median

CLIENTS = 2
WARM = 2000


def measure(rig: Rig) -> Iterator[Figure]:
    """Submit in batches over HTTP to a server whose only node is a stub, until all have ended."""
    sizes = rig.sizes
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as place, stub(place) as counts:
        warm = min(WARM, sizes.plane)
        run_through(place, counts, warm, sizes.batch)
        pids = {"server": [place.process.pid], "postgresql": rig.postgres.pids}
        before = {name: usage.cpu(each) for name, each in pids.items()}
        rates = [run_through(place, counts, sizes.plane, sizes.batch) for _ in range(sizes.rounds)]
        spent = {name: usage.cpu(each) - before[name] for name, each in pids.items()}
        check(dsn, counts, warm + sizes.rounds * sizes.plane)
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


def run_through(place: Installation, counts: Counts, tasks: int, batch: int) -> float:
    """Return how many tasks a second go from submit to a durable end."""
    requests = Requests(place.url, place.key)
    prepared = requests.batches(tasks, TRUE, batch)
    wanted = counts.accepted + tasks
    began = time.perf_counter()
    send_all(requests, prepared, CLIENTS)
    counts.wait_for(wanted)
    return tasks / (time.perf_counter() - began)


def check(dsn: str, counts: Counts, tasks: int) -> None:
    """Make sure that all is done, and that no report of the stub came too late."""
    await_empty(dsn)
    checks.all_done(dsn, tasks)
    if counts.stale:
        raise checks.Wrong(f"{counts.stale:,} reports were refused as stale")
