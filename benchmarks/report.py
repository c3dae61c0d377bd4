"""Reports the results: on the terminal, as JSON, and as a chart."""

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks import chart
from benchmarks.results import Measured
from duly.bench.figure_table import HEAD, row

JSON, SVG = "bench.json", "bench.svg"
UNBOUNDED = 220


def write(measured: Measured, folder: Path) -> None:
    """Write the figures as JSON and as a picture."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JSON).write_bytes(
        msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n"
    )
    (folder / SVG).write_text(chart.draw(measured))


def load(file: Path) -> Measured:
    """Read the figures of an earlier run."""
    return msgspec.json.decode(file.read_bytes(), type=Measured)


def draw(measured: Measured) -> None:
    """Print the table."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=UNBOUNDED)
    table = Table(title=str(measured.machine), title_justify="left")
    for name in HEAD:
        table.add_column(name, justify="right" if name in ("figure", "ratio") else "left")
    part = None
    for figure in measured.figures:
        if part not in (None, figure.part):
            table.add_section()
        part = figure.part
        colour = {True: "green", False: "red", None: ""}[figure.is_met]
        *cells, met = row(figure)
        table.add_row(*cells, Text(met, colour))
    console.print(table)
    for name, failure in measured.failures.items():
        console.print(Text(f"WRONG: {name}: {failure}", "bold red"))
