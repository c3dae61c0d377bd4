"""Draws the figures that have a target: one bar each, and a line that marks the targets.

A bar is a share of its own target, so that one scale serves all: past the line is met. For what
should be small the share is turned round, so that longer is better everywhere. Beside it stand
the figure, the limit that was measured with it, and the target.
"""

from collections.abc import Collection
from html import escape

from benchmarks.results import Measured
from duly.bench.figure import Figure
from duly.bench.figure_table import amount, row

WIDTH, LEFT, RIGHT, TOP, ROW = 1240, 500, 310, 70, 30
LONGEST = 2.0
"""Times the target; what is better yet is cut off there."""
LONG = 72
"""Letters of a name for which there is room."""
GOOD, BAD, FAINT, GRID = "#1a7f37", "#d1242f", "#777", "#e6e6e6"


def draw(measured: Measured) -> str:
    """Return the picture as SVG."""
    figures = [figure for figure in measured.figures if figure.target is not None]
    height = TOP + len(figures) * ROW + 46
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        _text(20, 28, _title(figures, measured.failures), 'font-size="18" font-weight="bold"'),
        _text(20, 50, str(measured.machine), f'fill="{FAINT}"'),
        *(line for place, one in enumerate(figures) for line in _bar(place, one)),
        *_axis(height),
        "</svg>\n",
    ]
    return "\n".join(lines)


def score(figure: Figure) -> float:
    """Return how far a figure is, with 1 for what just meets its target."""
    assert figure.target is not None
    value = figure.value if figure.ratio is None else figure.ratio
    bound = figure.target.bound
    if figure.target.sense == "at least":
        return value / bound
    return bound / value if value > 0 else LONGEST


def _title(figures: list[Figure], failures: Collection[str]) -> str:
    met = sum(1 for figure in figures if figure.is_met)
    wrong = f"; WRONG: {', '.join(failures)}" if failures else ""
    return f"{met} of {len(figures)} targets met{wrong}"


def _bar(place: int, figure: Figure) -> list[str]:
    y = TOP + place * ROW
    colour = GOOD if figure.is_met else BAD
    name, value, _, ratio, target, _ = row(figure)
    beside = f"{value} of {amount(figure.limit, figure.unit)}" if figure.limit else value
    # The unit of a target is that of its figure, and stands there already.
    bound = target if figure.limit else target.removesuffix(f" {figure.unit}")
    told = " · ".join(word for word in (beside, ratio, f"target {bound}") if word)
    long = figure.name if len(figure.name) <= LONG else figure.name[: LONG - 1] + "…"
    return [
        _text(LEFT - 10, y + 19, long, 'text-anchor="end"', tip=name),
        f'<rect x="{LEFT}" y="{y + 6}" width="{_x(score(figure)) - LEFT:.1f}" height="{ROW - 12}" '
        f'fill="{colour}" rx="2"/>',
        _text(WIDTH - RIGHT + 10, y + 19, told),
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
    return LEFT + min(share, LONGEST) / LONGEST * (WIDTH - RIGHT - LEFT)


def _text(x: float, y: float, words: str, more: str = "", tip: str = "") -> str:
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<text x="{x:.1f}" y="{y}" {more}>{escape(words)}{title}</text>'
