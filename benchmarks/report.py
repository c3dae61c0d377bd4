"""Reports the results on the terminal, as JSON and as a chart."""

from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks import chart
from benchmarks.results import Results
from duly.bench.figure_table import HEAD, row

JSON, SVG = "bench.json", "bench.svg"
TABLE_WIDTH = 220
"""Columns where the output is not a terminal, so that no row wraps."""


def write(results: Results, folder: Path) -> None:
    """Write the results as JSON and as a chart."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JSON).write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    (folder / SVG).write_text(chart.draw(results))


def load(file: Path) -> Results:
    """Read the results of an earlier run."""
    return msgspec.json.decode(file.read_bytes(), type=Results)


def print_table(results: Results) -> None:
    """Print the results as a table."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    table = Table(title=str(results.machine), title_justify="left")
    for name in HEAD:
        table.add_column(name, justify="right" if name in ("figure", "ratio") else "left")
    part = None
    for figure in results.figures:
        if part not in (None, figure.part):
            table.add_section()
        part = figure.part
        colour = {True: "green", False: "red", None: ""}[figure.is_met]
        *cells, met = row(figure)
        table.add_row(*cells, Text(met, colour))
    console.print(table)
    for name, failure in results.failures.items():
        console.print(Text(f"WRONG: {name}: {failure}", "bold red"))
