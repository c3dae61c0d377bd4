"""Draws a bar chart of the figures that have a target, as SVG.

Each bar is scaled to its own target, so that one axis serves all: a bar that crosses the line meets
its target. For figures that should be small the ratio is inverted, so that longer is always better.
The label on the right has the figure, the limit that was measured with it, and the target.
"""

from collections.abc import Collection
from html import escape

from benchmarks.results import Results
from duly.bench.figure import Figure
from duly.bench.figure_table import amount, row

WIDTH, LEFT, RIGHT, TOP, ROW = 1240, 500, 310, 70, 30
MAX_SCORE = 2.0
"""Multiple of the target at which bars are cut off."""
MAX_NAME_LENGTH = 72
GOOD, BAD, FAINT, GRID = "#1a7f37", "#d1242f", "#777", "#e6e6e6"


def draw(results: Results) -> str:
    """Return the chart as SVG."""
    figures = [figure for figure in results.figures if figure.target is not None]
    height = TOP + len(figures) * ROW + 46
    elements = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        _text(20, 28, _title(figures, results.failures), 'font-size="18" font-weight="bold"'),
        _text(20, 50, str(results.machine), f'fill="{FAINT}"'),
        *(element for number, figure in enumerate(figures) for element in _bar(number, figure)),
        *_axis(height),
        "</svg>\n",
    ]
    return "\n".join(elements)


def score(figure: Figure) -> float:
    """Return the figure as a multiple of its target: 1 just meets it, more is better."""
    assert figure.target is not None
    value = figure.value if figure.ratio is None else figure.ratio
    bound = figure.target.bound
    if figure.target.sense == "at least":
        return value / bound
    return bound / value if value > 0 else MAX_SCORE


def _title(figures: list[Figure], failures: Collection[str]) -> str:
    met = sum(1 for figure in figures if figure.is_met)
    wrong = f"; WRONG: {', '.join(failures)}" if failures else ""
    return f"{met} of {len(figures)} targets met{wrong}"


def _bar(number: int, figure: Figure) -> list[str]:
    y = TOP + number * ROW
    colour = GOOD if figure.is_met else BAD
    name, value, _, ratio, target, _ = row(figure)
    measured = f"{value} of {amount(figure.limit, figure.unit)}" if figure.limit else value
    # The figure beside it already shows the unit.
    bound = target if figure.limit else target.removesuffix(f" {figure.unit}")
    label = " · ".join(word for word in (measured, ratio, f"target {bound}") if word)
    short_name = (
        figure.name
        if len(figure.name) <= MAX_NAME_LENGTH
        else figure.name[: MAX_NAME_LENGTH - 1] + "…"
    )
    return [
        _text(LEFT - 10, y + 19, short_name, 'text-anchor="end"', tooltip=name),
        f'<rect x="{LEFT}" y="{y + 6}" width="{_x(score(figure)) - LEFT:.1f}" height="{ROW - 12}" '
        f'fill="{colour}" rx="2"/>',
        _text(WIDTH - RIGHT + 10, y + 19, label),
    ]


def _axis(height: int) -> list[str]:
    x, bottom = _x(1.0), height - 36
    line = f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#333"'
    return [
        f'<line x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{bottom}" stroke="{GRID}"/>',
        f'{line} stroke-dasharray="4 3"/>',
        _text(x, height - 16, "target: longer is better", f'text-anchor="middle" fill="{FAINT}"'),
    ]


def _x(share: float) -> float:
    return LEFT + min(share, MAX_SCORE) / MAX_SCORE * (WIDTH - RIGHT - LEFT)


def _text(x: float, y: float, content: str, attributes: str = "", tooltip: str = "") -> str:
    title = f"<title>{escape(tooltip)}</title>" if tooltip else ""
    return f'<text x="{x:.1f}" y="{y}" {attributes}>{escape(content)}{title}</text>'
