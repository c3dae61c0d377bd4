"""Runs the parts sequentially on one PostgreSQL."""

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import (
    admission,
    cluster,
    commands,
    control_plane,
    fill,
    graphs,
    idle,
    latency,
    machine,
    memory,
    runs,
    schedules,
    snapshot,
    store_sizes,
    submits,
)
from benchmarks.results import Measured
from benchmarks.rig import Rig, Sizes
from duly.bench.figure import Figure
from duly.bench.figure_table import row

PARTS: dict[str, Callable[[Rig], Iterator[Figure]]] = {
    "submit": submits.measure,
    "limits": admission.measure,
    "run": runs.measure,
    "latency": latency.measure,
    "graphs": graphs.measure,
    "schedules": schedules.measure,
    "plane": control_plane.measure,
    "waiting": store_sizes.waiting,
    "tenants": store_sizes.tenants,
    "finished": store_sizes.finished,
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
