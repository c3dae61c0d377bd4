"""`duly simulate`: runs a workload through the scheduler's policies."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from duly.cli.connect import print_notice
from duly.cli.output.printing import Output, OutputFlag, print_json, print_lines
from duly.errors import ConfigError
from duly.model.wording import either

if TYPE_CHECKING:
    from duly.sim.report import Report
    from duly.sim.workloads.fleet_options import FleetOptions
    from duly.sim.workloads.workload import Workload

MAX_TENANTS = 20
"""Tenants in the table; JSON has all of them."""
MAX_RUNS = 1000
NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


def simulate(
    workload: Annotated[
        Path | None,
        typer.Argument(metavar="WORKLOAD", help="A workload (.toml), or a trace (.swf, .swf.gz)."),
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(
            metavar="AGE", help="Instead of a file: the tasks run by your nodes, e.g. since 30d."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same history.")] = 1,
    policy: Annotated[
        str,
        typer.Option(metavar="NAMES", help="duly, fifo, sjf or edf; several with commas."),
    ] = "duly",
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="N|A..B|±N",
            help="Number of nodes; A..B runs each number; -2 or +2: so many fewer or more.",
        ),
    ] = None,
    cpus_per_node: Annotated[int | None, typer.Option(min=1, help="Cores of every node.")] = None,
    scale_load: Annotated[
        float, typer.Option(min=0.001, max=1000, help="Multiplies the rate of arrivals.")
    ] = 1.0,
    tenants: Annotated[
        str, typer.Option(metavar="user|group", help="Who is a tenant in a trace.")
    ] = "user",
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw waits, utilisation and shares over time as SVG."),
    ] = None,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Simulate a workload on a fleet: waits, utilisation, fairness. Only --history needs a server.

    The simulation runs the scheduler's own policies. Several policies or numbers of nodes are
    compared in a table with a row for each.
    """
    from duly.sim.workloads.fleet_options import FleetOptions

    _check_source(workload, history)
    _check_choices(output, tenants)
    if isnan(scale_load):  # It is neither below the minimum nor above the maximum.
        raise typer.BadParameter("'nan' is not a number. Try 1.5.", param_hint="--scale-load")
    policies, counts = _policies(policy), _node_counts(nodes)
    if picture is not None and len(policies) * len(counts) > 1:
        raise typer.BadParameter(
            "it shows one simulation. Give one policy and one number of nodes.",
            param_hint="--picture",
        )
    options = FleetOptions(
        cpus_per_node=cpus_per_node, scale_load=scale_load, tenants_by_group=tenants == "group"
    )
    fleets = [msgspec.structs.replace(options, **count) for count in counts]
    reports = _run(_source(workload, history), fleets, policies, seed, picture)
    _print(reports, output, is_comparison=len(fleets) * len(policies) > 1)


def _check_source(workload: Path | None, history: str | None) -> None:
    if workload is None and history is None:
        raise typer.BadParameter(
            "Give a workload file, or --history 30d for the tasks that your nodes have run."
        )
    if workload is not None and history is not None:
        raise typer.BadParameter("give either a workload or --history.", param_hint="--history")


def _check_choices(output: Output, tenants: str) -> None:
    if output in (Output.CSV, Output.ID):
        raise typer.BadParameter(
            "figures are not a list of tasks. Use table or json.", param_hint="--output"
        )
    if tenants not in ("user", "group"):
        raise typer.BadParameter(
            f"{tenants[:40]!r} is unknown. Use user or group.", param_hint="--tenants"
        )


def _source(workload: Path | None, history: str | None) -> "Callable[[FleetOptions], Workload]":
    """Return what makes the workload for a fleet; the history is read once for all fleets."""
    if workload is not None:
        from duly.sim.run import load

        return partial(load, workload)
    from duly.cli.fleet.history import read_history

    return read_history(history or "").workload


def _run(
    source: "Callable[[FleetOptions], Workload]",
    fleets: "Sequence[FleetOptions]",
    policies: Sequence[str],
    seed: int,
    picture: Path | None,
) -> "Iterator[Report]":
    from duly.sim.picture import draw
    from duly.sim.run import simulate as run_simulation

    for fleet in fleets:
        loaded = source(fleet)
        for name in policies:
            with _progress(loaded, name) as progress:
                simulation, report = run_simulation(loaded, name, seed, progress)
            yield report
            if picture is not None:
                _write(picture, draw(simulation, report))


def _policies(text: str) -> list[str]:
    from duly.sim.simulation import POLICIES

    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in POLICIES]:
        raise typer.BadParameter(
            f"there is no policy {unknown[0][:40]!r}. Use {either(POLICIES)}.",
            param_hint="--policy",
        )
    return list(dict.fromkeys(names))


def _node_counts(text: str | None) -> Sequence[Mapping[str, int]]:
    """Return the fields of `FleetOptions` for each number of nodes."""
    if text is None:
        return [{}]
    first, dots, last = text.partition("..")
    bounds = (first, last) if dots else (first, first)
    if not all(NUMBER.fullmatch(each) for each in bounds):
        raise typer.BadParameter(
            f"{text[:40]!r} is not a number. Give one, a range like 90..110, or -2 for two fewer.",
            param_hint="--nodes",
        )
    is_relative = any(each[0] in "+-" for each in bounds)
    low, high = map(int, bounds)
    if not is_relative and low < 1:
        raise typer.BadParameter("a fleet has at least 1 node.", param_hint="--nodes")
    if not low <= high < low + MAX_RUNS:
        raise typer.BadParameter(
            f"{text[:40]!r} is not a range of 1 to {MAX_RUNS} numbers. Write it like 90..110.",
            param_hint="--nodes",
        )
    return [{"more_nodes" if is_relative else "nodes": count} for count in range(low, high + 1)]


@contextmanager
def _progress(workload: "Workload", policy: str) -> Iterator[Callable[[float], None] | None]:
    """Show a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        label = f"{policy}, {workload.node_count} nodes"
        task = bar.add_task(label, total=workload.duration)
        yield lambda now: bar.update(task, completed=min(now, workload.duration))


def _write(file: Path, lines: Iterator[str]) -> None:
    try:
        with file.open("w", encoding="utf-8") as target:
            target.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise ConfigError(f"Cannot write {file}: {error.strerror}.") from error


def _print(reports: "Iterator[Report]", output: Output, *, is_comparison: bool) -> None:
    """Print each report as soon as its run has ended, except in JSON, which is one value."""
    from duly.sim.report import as_json

    if output is Output.JSONL:
        for report in reports:
            print_lines([as_json(report)])
            sys.stdout.flush()
    elif output is Output.JSON:
        values = [as_json(report) for report in reports]
        print_json({"items": values} if is_comparison else values[0])
    else:
        from duly.cli.fleet.simulation_tables import Comparison, print_report

        comparison, notes = Comparison(), dict[str, None]()
        for report in reports:
            notes |= dict.fromkeys(report.notes)
            if is_comparison:
                comparison.print_row(report)
            else:
                print_report(report, MAX_TENANTS)
        for note in notes:
            print_notice(note)
