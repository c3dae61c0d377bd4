"""`duly bench`: benchmarks the configured installation through its API."""

import signal
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from duly.bench.api_benchmark import RUNS, UNSEEN, ApiBenchmark, Bounds, Interrupted, Unfinished
from duly.bench.figure import Figure
from duly.bench.figure_table import amount, row
from duly.cli.connect import connect, describe_error, print_notice
from duly.cli.output.printing import Output, OutputFlag, print_json, print_lines
from duly.errors import DulyError


def bench(
    seconds: Annotated[
        float,
        typer.Option(
            metavar="N", min=1, max=3600, help="Start no new measurement after this many seconds."
        ),
    ] = 60.0,
    tasks: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=100_000, help="Number of /bin/true tasks to run at once."
        ),
    ] = 300,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Benchmark the installation: submit rate, run rate and start latency.

    Its tasks share one name, which is printed first; none is left waiting or running. They are
    real tasks: they compete with other work and count against your limits. Measurements that
    your limits do not allow are skipped.
    """
    if output in (Output.CSV, Output.ID):
        raise typer.BadParameter(
            "figures are not a list of tasks. Use table, json or jsonl.", param_hint="--output"
        )
    figures: list[Figure] = []
    with connect() as client:
        run = ApiBenchmark(client, Bounds(runs=tasks, seconds=seconds))
        _measure(run, figures)
        url = client.endpoint.name
    if not figures:
        raise typer.Exit(1)
    if output is Output.TABLE:
        _print_figures(figures, url)
    elif output is Output.JSONL:
        print_lines(msgspec.to_builtins(figures))
    else:
        print_json({"url": url, "name": run.name, "figures": msgspec.to_builtins(figures)})


def _measure(run: ApiBenchmark, figures: list[Figure]) -> None:
    print_notice(f"The tasks are named {run.name}.")
    signal.signal(signal.SIGINT, _interrupt_handler(run))
    try:
        run.measure(figures.append, _print_skipped)
    except Unfinished as error:
        print_notice(f"duly: {error}")
        raise typer.Exit(1) from error
    except Interrupted:
        raise typer.Exit(128 + signal.SIGINT) from None


def _print_skipped(part: str, refusal: DulyError) -> None:
    """Print which measurement was skipped, and why."""
    fewer = " Try fewer tasks with --tasks." if part == RUNS else ""
    print_notice(f"Skipped: {part}. {describe_error(refusal)}{fewer}")


def _interrupt_handler(run: ApiBenchmark) -> Callable[[int, Any], None]:
    """Return a SIGINT handler: the first Ctrl-C cancels the tasks, a second one exits at once."""

    def stop(signum: int, frame: Any) -> None:
        if run.stop.is_set():
            raise KeyboardInterrupt
        print_notice("Stopping: cancelling the tasks.")
        run.stop.set()

    return stop


def _print_figures(figures: list[Figure], url: str) -> None:
    from duly.cli.output.tables import print_table

    print_table(
        ("WHAT", "FIGURE"),
        ((row(figure)[0], amount(figure.value, figure.unit)) for figure in figures),
        right=("FIGURE",),
    )
    print_notice(f"\nMeasured at {url}, through its API. This cannot measure:")
    for what in UNSEEN:
        print_notice(f"- {what}")
    print_notice("Run 'make bench' in the source tree, on a dedicated machine, for these.")
