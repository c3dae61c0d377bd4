"""What Duly costs when there is nothing to do: CPU and memory of all its own processes."""

import time
from collections.abc import Iterator

from benchmarks import installation, usage
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_most

SETTLING = 5.0
MIB_OF_200_MB = 200e6 / 2**20


def measure(rig: Rig) -> Iterator[Figure]:
    """Start everything as `duly up` does, pages included, and leave it alone."""
    seconds = rig.sizes.idle_seconds
    with rig.store() as dsn, installation.up(rig.postgres, dsn, pages=True) as place:
        time.sleep(min(SETTLING, seconds))
        parts, postgres = place.parts, rig.postgres.pids
        before = {name: usage.cpu(pids) for name, pids in parts.items()}
        database = usage.cpu(postgres)
        began = time.perf_counter()
        time.sleep(seconds)
        span = time.perf_counter() - began
        spent = {name: (usage.cpu(pids) - before[name]).own for name, pids in parts.items()}
        database -= database - usage.cpu(postgres)
        memory = {name: usage.memory(pids) for name, pids in parts.items()}
    yield Figure(
        part="idle",
        name="idle, all processes but PostgreSQL",
        value=sum(spent.values()) / span * 100,
        unit="% of a core",
        target=at_most(1.0),
        note=", ".join(f"{name} {cpu / span:.2%}" for name, cpu in spent.items()),
    )
    whole = sum(memory.values(), usage.Memory())
    yield Figure(
        part="idle",
        name="memory when idle, PSS: what is shared counts once",
        value=whole.pss,
        unit="MiB",
        target=at_most(MIB_OF_200_MB),
        note=", ".join(f"{name} {each.pss:.0f}" for name, each in memory.items()),
    )
    yield Figure(
        part="idle",
        name="memory when idle, RSS",
        value=whole.rss,
        unit="MiB",
        target=at_most(MIB_OF_200_MB),
        note=", ".join(f"{name} {each.rss:.0f}" for name, each in memory.items()),
    )
