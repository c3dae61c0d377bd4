"""Formats figures as rows of text, for the terminal and for Markdown."""

from collections.abc import Iterable

from duly.bench.figure import Figure

HEAD = ("what", "figure", "limit", "ratio", "target", "met")


def row(figure: Figure) -> tuple[str, str, str, str, str, str]:
    """Return the cells of a figure, in the order of HEAD."""
    ratio, met = figure.ratio, figure.is_met
    return (
        f"{figure.name} ({figure.note})" if figure.note else figure.name,
        amount(figure.value, figure.unit),
        f"{amount(figure.limit, figure.unit)} {figure.against}" if figure.limit else "",
        "" if ratio is None else f"{ratio:.0%}",
        _target(figure),
        "" if met is None else ("yes" if met else "NO"),
    )


def amount(value: float, unit: str) -> str:
    """Format a value with about three significant digits, and its unit."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{'' if unit.startswith('/') else ' '}{unit}"


def markdown(figures: Iterable[Figure]) -> str:
    """Return the figures as a table in Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *(row(figure) for figure in figures)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    sign = "≥" if figure.target.sense == "at least" else "≤"
    bound = figure.target.bound
    limit = amount(bound, figure.unit) if figure.ratio is None else f"{bound:.0%}"
    return f"{sign} {limit}"
