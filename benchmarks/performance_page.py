"""Writes the results of a run into docs/explanation/performance.md."""

from pathlib import Path

from benchmarks.chart import draw
from benchmarks.machine import ROOT
from benchmarks.results import Results
from duly.bench.figure_table import markdown

PAGE = ROOT / "docs" / "explanation" / "performance.md"
CHART = ROOT / "docs" / "images" / "performance.svg"
BEGIN = "<!-- figures: begin, written by `python -m benchmarks --page` -->"
END = "<!-- figures: end -->"


def update_page(page: Path, results: Results) -> None:
    """Replace the figures and the chart of `page`."""
    if results.failures:
        raise SystemExit(
            f"The results of a run that went wrong are not published: {results.failures}"
        )
    page.write_text(with_figures(page.read_text(), results))
    CHART.write_text(draw(results))


def with_figures(text: str, results: Results) -> str:
    """Return the text of a page with the figures between the BEGIN and END markers replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("the page has no markers for the figures")
    figures = f"Measured on {results.machine}.\n\n{markdown(results.figures)}"
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}"
