"""Measures the idle cost: CPU time and memory of all of Duly's processes."""

import time
from collections.abc import Iterator

from benchmarks import installation, usage
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_most

SETTLING_SECONDS = 5.0
MIB_OF_200_MB = 200e6 / 2**20
POSTGRESQL = "PostgreSQL"


def measure(rig: Rig) -> Iterator[Figure]:
    """Start `duly up` with its pages, and leave it alone."""
    seconds = rig.sizes.idle_seconds
    with rig.store() as dsn, installation.up(rig.postgres, dsn, pages=True) as instance:
        time.sleep(min(SETTLING_SECONDS, seconds))
        parts = instance.parts
        measured = parts | {POSTGRESQL: rig.postgres.pids}
        before = {name: usage.precise_cpu_seconds(pids) for name, pids in measured.items()}
        began = time.monotonic()
        time.sleep(seconds)
        elapsed = time.monotonic() - began
        shares = {
            name: (usage.precise_cpu_seconds(pids) - before[name]) / elapsed * 100
            for name, pids in measured.items()
        }
        memory = {name: usage.memory(pids) for name, pids in parts.items()}
    yield from _cpu(shares)
    yield from _memory(memory)


def _cpu(shares: dict[str, float]) -> Iterator[Figure]:
    database = shares.pop(POSTGRESQL)
    yield Figure(
        part="idle",
        name="idle, all processes but PostgreSQL",
        value=sum(shares.values()),
        unit="% of a core",
        target=at_most(1.0),
        note=", ".join(f"{name} {share:.2f} %" for name, share in shares.items()),
    )
    yield Figure(part="idle", name="idle, PostgreSQL beside it", value=database, unit="% of a core")


def _memory(memory: dict[str, usage.Memory]) -> Iterator[Figure]:
    for name, sizes in (
        (
            "PSS, what is shared counts once",
            {part: usage_of_part.pss for part, usage_of_part in memory.items()},
        ),
        ("RSS", {part: usage_of_part.rss for part, usage_of_part in memory.items()}),
    ):
        yield Figure(
            part="idle",
            name=f"memory when idle, {name}",
            value=sum(sizes.values()),
            unit="MiB",
            target=at_most(MIB_OF_200_MB),
            note=", ".join(f"{part} {size:.0f}" for part, size in sizes.items()),
        )
