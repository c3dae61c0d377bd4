"""Draws the timeline of a run: throughput, terms, faults and recoveries.

All panels share the time axis, so that a drop in throughput and its cause are in one column.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tests.torture.run_result import Episode, Lease, Recovery, RunResult, rates
from tests.torture.svg import Canvas, Scale

WIDTH, LEFT, NO_OFFSET, TOP = 1680.0, 300.0, 24.0, 78.0
RATES, TERMS, ROW, GAP = 190.0, 90.0, 19.0, 46.0
GRID, FAINT, GOOD, BAD = "#e6e6e6", "#777", "#1a7f37", "#d1242f"
SERIES_COLOURS = {"submitted": "#8250df", "started": "#0969da", "ended": "#1a7f37"}
TERM_COLOURS = ("#54aeff", "#0a4b8c", "#b6e3ff", "#1f77c9")
KIND_COLOURS = {
    "server": "#f0883e",
    "node": "#3fb1a3",
    "network": "#c297ff",
    "database": "#e5534b",
    "clock": "#d4a72c",
    "disk": "#8c7a6b",
}
OTHER_COLOUR = "#999"


@dataclass(frozen=True)
class Frame:
    """The position of a panel, and its time scale."""

    canvas: Canvas
    time: Scale
    top: float
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height


def draw(run: RunResult) -> str:
    """Return the timeline of a run as SVG."""
    rows = _rows(run)
    faults_top = TOP + RATES + GAP + TERMS + GAP
    canvas = Canvas(WIDTH, faults_top + len(rows) * ROW + 58)
    time = Scale(0, max(run.seconds, 1), LEFT, WIDTH - NO_OFFSET)
    upper = Frame(canvas, time, TOP, RATES)
    middle = Frame(canvas, time, TOP + RATES + GAP, TERMS)
    lower = Frame(canvas, time, faults_top, len(rows) * ROW)

    _title(canvas, run)
    for frame in (upper, middle, lower):
        _shade_faults(frame, run.episodes)
        _grid(frame, run.seconds)
    _throughput(upper, run)
    _terms(middle, run.leases, run.seconds)
    _faults(lower, rows, run.episodes, run.recoveries)
    _time_axis(lower, run.seconds)
    return canvas.render()


def _title(canvas: Canvas, run: RunResult) -> None:
    late, violations = len(run.late), len(run.violations)
    label = f"{run.tasks:,} tasks, {len(run.episodes)} faults in {run.seconds / 60:.1f} minutes"
    canvas.text(20, 32, label, font_size=20, font_weight="bold")
    summary = f"{violations} violations, {late} of {len(run.recoveries)} recoveries too late"
    canvas.text(20, 54, summary, fill=GOOD if run.is_good else BAD, font_weight="bold")
    description = f"seed {run.seed} · commit {run.commit}"
    canvas.text(WIDTH - NO_OFFSET, 32, description, text_anchor="end", fill=FAINT)
    x = WIDTH - NO_OFFSET
    for kind in reversed(_kinds(run)):
        x -= 14 + 7.5 * len(kind)
        canvas.rect(x - 14, 45, 10, 10, KIND_COLOURS.get(kind, OTHER_COLOUR))
        canvas.text(x, 54, kind, fill=FAINT)
        x -= 14


def _rows(run: RunResult) -> list[str]:
    """Return the faults, grouped by kind."""
    kinds = _kinds(run)
    ordered = sorted(run.episodes, key=lambda episode: (kinds.index(episode.kind), episode.fault))
    return list(dict.fromkeys(episode.fault for episode in ordered))


def _kinds(run: RunResult) -> list[str]:
    present = {episode.kind for episode in run.episodes}
    return [kind for kind in KIND_COLOURS if kind in present] + sorted(present - set(KIND_COLOURS))


def _shade_faults(frame: Frame, episodes: tuple[Episode, ...]) -> None:
    for episode in episodes:
        x = frame.time(episode.began)
        width = max(frame.time(episode.healed) - x, 1.0)
        colour = KIND_COLOURS.get(episode.kind, OTHER_COLOUR)
        frame.canvas.rect(x, frame.top, width, frame.height, colour, opacity="0.09")


def _grid(frame: Frame, seconds: float) -> None:
    for at in _ticks(seconds):
        x = frame.time(at)
        frame.canvas.line(x, frame.top, x, frame.bottom, GRID)


def _ticks(seconds: float) -> Iterator[int]:
    step = next(
        step for step in (10, 30, 60, 120, 300, 3600) if seconds / step <= 20 or step == 3600
    )
    return iter(range(0, int(seconds) + 1, step))


def _time_axis(frame: Frame, seconds: float) -> None:
    for at in _ticks(seconds):
        label = f"{at // 60}:{at % 60:02}"
        frame.canvas.text(
            frame.time(at), frame.bottom + 18, label, text_anchor="middle", fill=FAINT
        )
    middle = frame.time(seconds / 2)
    label = "minutes since the load began"
    frame.canvas.text(middle, frame.bottom + 38, label, text_anchor="middle", fill=FAINT)


def _throughput(frame: Frame, run: RunResult) -> None:
    width = max(1.0, run.seconds / 300)
    series = {
        name: rates(run.event_times.get(name, ()), run.seconds, width) for name in SERIES_COLOURS
    }
    # Batches and backlogs cause single peaks, which may be cut off.
    ordered = sorted(itertools.chain.from_iterable(series.values())) or [0.0]
    top = max(ordered[int(len(ordered) * 0.99)] * 1.25, 1.0)
    scale = Scale(0, top, frame.bottom, frame.top)
    _value_axis(frame, scale, top)
    for name, values in series.items():
        points = [
            (frame.time((index + 0.5) * width), scale(min(value, top)))
            for index, value in enumerate(values)
            if (index + 0.5) * width <= run.seconds
        ]
        frame.canvas.path(points, SERIES_COLOURS[name], stroke_width=1.5, stroke_linejoin="round")
    frame.canvas.text(20, frame.top + 10, "tasks per second", font_weight="bold")
    for index, (name, colour) in enumerate(SERIES_COLOURS.items()):
        y = frame.top + 32 + 18 * index
        frame.canvas.line(20, y - 4, 40, y - 4, colour, stroke_width=3)
        frame.canvas.text(48, y, name)


def _value_axis(frame: Frame, scale: Scale, top: float) -> None:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**6) if top / step <= 6)
    for value in range(0, int(top) + 1, step):
        y = scale(value)
        frame.canvas.line(LEFT, y, WIDTH - NO_OFFSET, y, GRID)
        frame.canvas.text(LEFT - 8, y + 4, str(value), text_anchor="end", fill=FAINT)


def _terms(frame: Frame, leases: tuple[Lease, ...], seconds: float) -> None:
    width = max(1.0, seconds / 300)
    terms = sorted({lease.term for lease in leases})
    highest = max(rates([lease.at for lease in leases], seconds, width), default=1.0) or 1.0
    bars = [0.0] * (int(seconds / width) + 1)
    scale = frame.height / highest
    for index, term in enumerate(terms):
        term_rates = rates([lease.at for lease in leases if lease.term == term], seconds, width)
        for interval, value in enumerate(term_rates):
            if value:
                bars[interval] += value
                x = frame.time(interval * width)
                bar_width = min(frame.time((interval + 1) * width), WIDTH - NO_OFFSET) - x
                y = frame.bottom - bars[interval] * scale
                colour = TERM_COLOURS[index % len(TERM_COLOURS)]
                frame.canvas.rect(
                    x, y, bar_width + 0.3, value * scale, colour, title=f"term {term}"
                )
    _term_numbers(frame, leases)
    frame.canvas.text(20, frame.top + 10, "leases per second", font_weight="bold")
    frame.canvas.text(20, frame.top + 28, "a colour and number")
    frame.canvas.text(20, frame.top + 44, "for every term")


def _term_numbers(frame: Frame, leases: tuple[Lease, ...]) -> None:
    first: dict[int, float] = {}
    for lease in leases:
        first[lease.term] = min(first.get(lease.term, lease.at), lease.at)
    last = -100.0
    for term, at in sorted(first.items()):
        x = frame.time(max(at, 0.0))
        frame.canvas.line(x, frame.top - 4, x, frame.bottom, "#0a4b8c", stroke_dasharray="2 3")
        if x - last > 16:
            frame.canvas.text(x, frame.top - 8, str(term), text_anchor="middle", font_size=11)
            last = x


def _faults(
    frame: Frame,
    rows: list[str],
    episodes: tuple[Episode, ...],
    recoveries: tuple[Recovery, ...],
) -> None:
    rows_y = {name: frame.top + index * ROW for index, name in enumerate(rows)}
    for name, y in rows_y.items():
        frame.canvas.line(20, y, WIDTH - NO_OFFSET, y, GRID)
        frame.canvas.text(LEFT - 8, y + 14, name, text_anchor="end")
    for episode in episodes:
        x = frame.time(episode.began)
        bar_width = max(frame.time(episode.healed) - x, 3.0)
        tooltip = f"{episode.fault}: {episode.on}, {episode.began:.1f} to {episode.healed:.1f} s"
        colour = KIND_COLOURS.get(episode.kind, OTHER_COLOUR)
        frame.canvas.rect(
            x,
            rows_y[episode.fault] + 4,
            bar_width,
            ROW - 8,
            colour,
            rx=2,
            opacity="0.6",
            title=tooltip,
        )
    for recovery in recoveries:
        _recovery(frame, rows_y[recovery.fault] + ROW / 2, recovery)


def _recovery(frame: Frame, y: float, recovery: Recovery) -> None:
    """Draw a recovery: a line from its start to a dot at the time of recovery."""
    colour = GOOD if recovery.is_in_time else BAD
    took = recovery.target if recovery.took is None else recovery.took
    begin = frame.time(recovery.since)
    end = min(frame.time(recovery.since + took), WIDTH - NO_OFFSET)
    frame.canvas.line(begin, y, end, y, colour, stroke_width=2)
    frame.canvas.circle(end, y, 3, colour, title=f"{recovery.clock} after {took:.1f} s")
    label = "never" if recovery.took is None else f"{recovery.took:.1f}"
    halo = {"stroke": "#fff", "stroke_width": 3, "paint_order": "stroke"}
    frame.canvas.text(end + 5, y + 4, label, fill=colour, font_size=10, **halo)
