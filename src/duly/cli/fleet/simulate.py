"""`duly simulate`: runs a workload through the scheduler's policies, without a server."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duly.cli.connect import print_notice
from duly.cli.output.printing import Output, OutputFlag, print_json, print_lines
from duly.errors import ConfigError
from duly.model.wording import either

if TYPE_CHECKING:
    from duly.sim.report import Report
    from duly.sim.workload import Workload

MAX_TENANTS = 20
"""Tenants in the table; JSON has all of them."""
MAX_RUNS = 1000


def simulate(
    workload: Annotated[
        Path,
        typer.Argument(metavar="WORKLOAD", help="A workload (.toml), or a trace (.swf, .swf.gz)."),
    ],
    seed: Annotated[int, typer.Option(help="The same seed gives the same history.")] = 1,
    policy: Annotated[
        str,
        typer.Option(metavar="NAMES", help="duly, fifo, sjf or edf; several with commas."),
    ] = "duly",
    nodes: Annotated[
        str | None,
        typer.Option(metavar="N|A..B", help="Number of nodes; A..B runs each number."),
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
    """Simulate a workload on a fleet: waits, utilisation, fairness. Needs no server.

    The simulation runs the scheduler's own policies. Several policies or numbers of nodes are
    compared in a table with a row for each.
    """
    if output in (Output.CSV, Output.ID):
        raise typer.BadParameter(
            "figures are not a list of tasks. Use table or json.", param_hint="--output"
        )
    from duly.sim.fleet_options import FleetOptions
    from duly.sim.picture import draw
    from duly.sim.run import load
    from duly.sim.run import simulate as run_simulation

    policies, counts = _policies(policy), _node_counts(nodes)
    if tenants not in ("user", "group"):
        raise typer.BadParameter(
            f"{tenants[:40]!r} is unknown. Use user or group.", param_hint="--tenants"
        )
    if picture is not None and len(policies) * len(counts) > 1:
        raise typer.BadParameter(
            "it shows one simulation. Give one policy and one number of nodes.",
            param_hint="--picture",
        )
    reports = []
    for count in counts:
        loaded = load(
            workload,
            FleetOptions(
                nodes=count,
                cpus_per_node=cpus_per_node,
                scale_load=scale_load,
                tenants_by_group=tenants == "group",
            ),
        )
        for name in policies:
            with _progress(loaded, name) as progress:
                simulation, report = run_simulation(loaded, name, seed, progress)
            reports.append(report)
            if picture is not None:
                _write(picture, draw(simulation, report))
    _print(reports, output)


def _policies(text: str) -> list[str]:
    from duly.sim.simulation import POLICIES

    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in POLICIES]:
        raise typer.BadParameter(
            f"there is no policy {unknown[0][:40]!r}. Use {either(POLICIES)}.",
            param_hint="--policy",
        )
    return list(dict.fromkeys(names))


def _node_counts(text: str | None) -> Sequence[int | None]:
    if text is None:
        return [None]
    first, dots, last = text.partition("..")
    bounds = (first, last) if dots else (first, first)
    if not all(each.isascii() and each.isdigit() for each in bounds):
        raise typer.BadParameter(
            f"{text[:40]!r} is not a number. Give one, or a range like 90..110.",
            param_hint="--nodes",
        )
    low, high = map(int, bounds)
    if not 1 <= low <= high < low + MAX_RUNS:
        raise typer.BadParameter(
            f"{text[:40]!r} is not a range of 1 to {MAX_RUNS} numbers. Write it like 90..110.",
            param_hint="--nodes",
        )
    return range(low, high + 1)


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


def _print(reports: "Sequence[Report]", output: Output) -> None:
    from duly.sim.report import as_json

    if output is Output.JSONL:
        print_lines(map(as_json, reports))
    elif output is Output.JSON:
        values = [as_json(report) for report in reports]
        print_json(values[0] if len(values) == 1 else {"items": values})
    else:
        from duly.cli.fleet.simulation_tables import print_comparison, print_report

        if len(reports) == 1:
            print_report(reports[0], MAX_TENANTS)
        else:
            print_comparison(reports)
        for note in dict.fromkeys(note for report in reports for note in report.notes):
            print_notice(note)
