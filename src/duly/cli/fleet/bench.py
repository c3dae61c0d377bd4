"""`duly bench`: how fast the configured installation is, seen from here."""

import signal
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from duly.bench.figure import Figure
from duly.bench.outside import RUNS, UNSEEN, Bounds, Interrupted, Outside, Unfinished
from duly.bench.telling import amount, row
from duly.cli.connect import connect, say
from duly.cli.output import Output, OutputFlag, print_json, print_lines
from duly.errors import DulyError


def bench(
    seconds: Annotated[
        float, typer.Option(min=1, max=3600, help="Begin nothing more after so long.")
    ] = 60.0,
    tasks: Annotated[
        int, typer.Option(min=1, max=100_000, help="How many /bin/true to run at once.")
    ] = 300,
    output: OutputFlag = Output.TABLE,
) -> None:
    """Measure the installation from here: submits, runs of /bin/true, how soon one starts.

    Its tasks share one name, which is told first; none of them is left waiting or running.
    They are real tasks: whoever else uses the installation has to share it meanwhile, and
    they count for your limits. What those do not allow is left out.
    """
    if output in (Output.CSV, Output.ID):
        raise typer.BadParameter("Figures are no list of tasks; try json.", param_hint="--output")
    figures: list[Figure] = []
    with connect() as client:
        run = Outside(client, Bounds(runs=tasks, seconds=seconds))
        _measure(run, figures)
        url = client.endpoint.name
    if not figures:
        raise typer.Exit(1)
    if output is Output.TABLE:
        _draw(figures, url)
    elif output is Output.JSONL:
        print_lines(msgspec.to_builtins(figures))
    else:
        print_json({"url": url, "name": run.name, "figures": msgspec.to_builtins(figures)})


def _measure(run: Outside, figures: list[Figure]) -> None:
    say(f"The tasks are named {run.name}.")
    signal.signal(signal.SIGINT, _interrupt(run))
    try:
        run.measure(figures.append, _say_left_out)
    except Unfinished as error:
        say(f"duly: {error}")
        raise typer.Exit(1) from error
    except Interrupted:
        raise typer.Exit(128 + signal.SIGINT) from None


def _say_left_out(part: str, refusal: DulyError) -> None:
    """Say what is not measured, and what could be done about it."""
    fewer = " Fewer may do: --tasks." if part == RUNS else ""
    say(f"Left out: {part}. {refusal.message}{fewer}")


def _interrupt(run: Outside) -> Callable[[int, Any], None]:
    """Let the first Ctrl-C take back what was submitted; a second one does not wait for that."""

    def stop(signum: int, frame: Any) -> None:
        if run.stop.is_set():
            raise KeyboardInterrupt
        say("Stopping: the tasks are taken back.")
        run.stop.set()

    return stop


def _draw(figures: list[Figure], url: str) -> None:
    from duly.cli.tables import draw

    draw(
        ("WHAT", "FIGURE"),
        ((row(one)[0], amount(one.value, one.unit)) for one in figures),
        right=("FIGURE",),
    )
    say(f"\nMeasured at {url}, through its API. Not to be seen from here:")
    for what in UNSEEN:
        say(f"- {what}")
    say("`make bench` in the sources measures those, on a machine of its own.")
