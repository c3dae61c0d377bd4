"""Formats the figures as tables, for the terminal and as Markdown."""

from collections.abc import Iterable

from benchmarks.peers.catalog import SYSTEMS
from benchmarks.peers.figures import Row
from benchmarks.peers.system import About, Broker

HEADINGS = (
    "system",
    "what waits is in",
    "end to end",
    "posix_spawn then",
    "share",
    "start p50",
    "start p99",
)
KEPT = {
    Broker.NONE: "nothing: what waits is gone with the program",
    Broker.OWN: "an acknowledged submit is on disk, and so is every end",
    Broker.POSTGRES: "an acknowledged submit is on disk, and so is every end",
    Broker.REDIS: "up to a second of submits and ends is lost with the machine, and next to "
    "nothing when only Redis is killed",
    Broker.REDIS_ALWAYS: "an acknowledged submit is on disk, and so is every end",
}
"""What a kill -9 of the broker, or a loss of power, leaves."""


def cells(row: Row) -> tuple[str, ...]:
    """Return a row's fields, in the order of the headings."""
    title = SYSTEMS[row.system].about.title
    if row.figures is None:
        why = "failed" if row.is_failure else "left out"
        return title, row.broker, why, "", "", "", ""
    figures = row.figures
    return (
        title,
        row.broker,
        f"{figures.rate:,.0f}/s",
        f"{figures.limit:,.0f}/s",
        f"{figures.share:.0%}".replace("%", " %"),
        f"{figures.percentile(0.5):.1f} ms",
        f"{figures.percentile(0.99):.1f} ms",
    )


def by_share(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, the quickest first, those without figures last."""
    return sorted(rows, key=lambda row: -row.figures.share if row.figures else 1.0)


def markdown(headings: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """Return a table in markdown."""
    first = list(headings)
    rows = [first, ["---"] * len(first), *map(list, lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def figures_table(rows: Iterable[Row]) -> str:
    """Return speed, as measured."""
    return markdown(HEADINGS, (cells(row) for row in by_share(rows)))


def facts_table(systems: Iterable[About]) -> str:
    """Return what each system gives beside speed."""
    headings = ("system", "a worker is killed in the middle of a task", "isolation", "caps", "logs")
    return markdown(
        headings,
        (
            (each.title, facts.worker_killed, facts.isolation, facts.caps, facts.logs)
            for each in systems
            for facts in [each.facts]
        ),
    )


def durability_table() -> str:
    """Return what each way to keep tasks leaves after a crash."""
    return markdown(("kept in", "after a crash of that"), KEPT.items())


def settings_list(systems: Iterable[About]) -> str:
    """Return how each system was set up."""
    return "".join(f"- **{each.title}**: {'; '.join(each.settings)}.\n" for each in systems)


def versions_line(rows: Iterable[Row]) -> str:
    """Return the versions of all that took part, each once."""
    return " · ".join(dict.fromkeys(version for row in rows for version in row.versions))
