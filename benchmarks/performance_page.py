"""Writes the table of figures in docs/explanation/performance.md from the JSON of a run."""

from pathlib import Path

from benchmarks.chart import draw
from benchmarks.machine import ROOT
from benchmarks.results import Measured
from duly.bench.figure_table import markdown

PAGE = ROOT / "docs" / "explanation" / "performance.md"
PICTURE = ROOT / "docs" / "images" / "performance.svg"
BEGIN = "<!-- figures: begin, written by `python -m benchmarks --page` -->"
END = "<!-- figures: end -->"


def update(page: Path, measured: Measured) -> None:
    """Replace the figures on the page, and its picture."""
    if measured.failures:
        raise SystemExit(f"These figures are of a run that went wrong: {measured.failures}")
    page.write_text(replaced(page.read_text(), measured))
    PICTURE.write_text(draw(measured))


def replaced(text: str, measured: Measured) -> str:
    """Return the page's text with these figures between its two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page has no marks between which figures could stand")
    figures = f"Measured on {measured.machine}.\n\n{markdown(measured.figures)}"
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}"
