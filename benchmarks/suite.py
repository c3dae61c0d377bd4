"""Runs the selected parts one after another on one PostgreSQL."""

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
    functions,
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
from benchmarks.results import Results
from benchmarks.rig import Rig, Sizes
from duly.bench.figure import Figure
from duly.bench.figure_table import row

PARTS: dict[str, Callable[[Rig], Iterator[Figure]]] = {
    "submit": submits.measure,
    "limits": admission.measure,
    "run": runs.measure,
    "latency": latency.measure,
    "functions": functions.measure,
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
    parts: Sequence[str],
    sizes: Sizes,
    log: Callable[[str], None],
    stores_folder: Path | None = None,
) -> Results:
    """Measure `parts`, and log progress; a part that fails does not stop the others.

    With a `stores_folder`, filled stores are kept there for the next run.
    """
    figures, failures = list[Figure](), dict[str, str]()
    with cluster.started(stores_folder) as postgres:
        log("preparing")
        fill.make_template(postgres)
        for part in parts:
            began = time.monotonic()
            log(f"{part} …")
            try:
                for figure in PARTS[part](Rig(postgres, sizes)):
                    figures.append(figure)
                    log("  ".join(cell for cell in row(figure) if cell))
            except Exception as error:
                failures[part] = f"{type(error).__name__}: {error}"
                log("".join(traceback.format_exception(error)))
            log(f"{part} took {time.monotonic() - began:.0f} s")
        return Results(machine=machine.describe(postgres), figures=figures, failures=failures)
