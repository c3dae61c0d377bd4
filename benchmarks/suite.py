"""Runs the parts one after the other, on one PostgreSQL."""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import (
    admission,
    cluster,
    commands,
    fill,
    graphs,
    idle,
    latency,
    machine,
    memory,
    plane,
    runs,
    schedules,
    snapshot,
    stores,
    submits,
)
from benchmarks.measured import Measured
from benchmarks.rig import Rig, Sizes
from duly.bench.figure import Figure
from duly.bench.telling import row

PARTS: dict[str, Callable[[Rig], Iterator[Figure]]] = {
    "submit": submits.measure,
    "limits": admission.measure,
    "run": runs.measure,
    "latency": latency.measure,
    "graphs": graphs.measure,
    "schedules": schedules.measure,
    "plane": plane.measure,
    "waiting": stores.waiting,
    "tenants": stores.tenants,
    "finished": stores.finished,
    "snapshot": snapshot.measure,
    "idle": idle.measure,
    "memory": memory.measure,
    "cli": commands.measure,
}


def run(
    parts: Sequence[str], sizes: Sizes, say: Callable[[str], None], kept: Path | None = None
) -> Measured:
    """Measure `parts`; one that fails is told, and does not keep the others from being run.

    Stores that take long to fill are kept in a folder, if one is given, for the next run.
    """
    figures, failures = list[Figure](), dict[str, str]()
    with cluster.started(kept) as postgres:
        say("preparing")
        fill.make_template(postgres)
        for part in parts:
            began = time.monotonic()
            say(f"{part} …")
            try:
                for figure in PARTS[part](Rig(postgres, sizes)):
                    figures.append(figure)
                    say("  ".join(cell for cell in row(figure) if cell))
            except Exception as error:
                failures[part] = f"{type(error).__name__}: {error}"
                say("".join(traceback.format_exception(error)))
            say(f"{part} took {time.monotonic() - began:.0f} s")
        return Measured(machine=machine.describe(postgres), figures=figures, failures=failures)
