"""Formats the figures as tables, for the terminal and as Markdown."""

from collections.abc import Iterable

from benchmarks.peers.catalog import SYSTEMS
from benchmarks.peers.figures import Row
from benchmarks.peers.system import About, Broker

HEADINGS = (
    "system",
    "waiting tasks are in",
    "end to end",
    "posix_spawn limit",
    "share",
    "start p50",
    "start p99",
)
FUNCTION_HEADINGS = ("system", "waiting tasks are in", "calls", "start p50", "start p99")
DURABILITY = {
    Broker.NONE: "nothing: waiting tasks end with the program",
    Broker.OWN: "every acknowledged submit and every end is on disk",
    Broker.POSTGRES: "every acknowledged submit and every end is on disk",
    Broker.REDIS: "up to a second of submits and ends is lost if the machine crashes, and hardly "
    "anything if only Redis is killed",
    Broker.REDIS_ALWAYS: "every acknowledged submit and every end is on disk",
}
"""What remains after the broker was killed with SIGKILL, or after a power failure."""


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row, in the order of HEADINGS."""
    title = SYSTEMS[row.system].about.title
    if row.figures is None:
        status = "failed" if row.is_failure else "left out"
        return title, row.broker, status, "", "", "", ""
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


def function_cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row with figures of functions, in the order of FUNCTION_HEADINGS."""
    figures = row.figures
    if figures is None or figures.function_rate is None:
        raise ValueError(f"{row.system} has no figures of functions")
    return (
        SYSTEMS[row.system].about.title,
        row.broker,
        f"{figures.function_rate:,.0f}/s",
        f"{figures.function_percentile(0.5):.1f} ms",
        f"{figures.function_percentile(0.99):.1f} ms",
    )


def by_function_rate(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with figures of functions, the fastest first."""
    rated = [
        (rate, row)
        for row in rows
        if row.figures is not None and (rate := row.figures.function_rate) is not None
    ]
    return [row for _, row in sorted(rated, key=lambda entry: -entry[0])]


def by_share(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, the fastest first and those without figures last."""
    return sorted(rows, key=lambda row: -row.figures.share if row.figures else 1.0)


def markdown(headings: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    header = list(headings)
    rows = [header, ["---"] * len(header), *map(list, lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def figures_table(rows: Iterable[Row]) -> str:
    """Return the table of measurements."""
    return markdown(HEADINGS, (cells(row) for row in by_share(rows)))


def functions_table(rows: Iterable[Row]) -> str:
    """Return the table of calls of functions."""
    return markdown(FUNCTION_HEADINGS, map(function_cells, by_function_rate(rows)))


def facts_table(systems: Iterable[About]) -> str:
    """Return the table of other properties."""
    headings = ("system", "a worker is killed in the middle of a task", "isolation", "caps", "logs")
    return markdown(
        headings,
        (
            (system.title, facts.worker_killed, facts.isolation, facts.caps, facts.logs)
            for system in systems
            for facts in [system.facts]
        ),
    )


def durability_table() -> str:
    """Return the table of what remains after a crash, by broker."""
    return markdown(("waiting tasks are in", "after a crash"), DURABILITY.items())


def settings_list(systems: Iterable[About]) -> str:
    """Return the list of settings, by system."""
    return "".join(f"- **{system.title}**: {'; '.join(system.settings)}.\n" for system in systems)


def versions_line(rows: Iterable[Row]) -> str:
    """Return the versions of all measured software, each once."""
    return " · ".join(dict.fromkeys(version for row in rows for version in row.versions))
