"""Draws the timeline of a run: throughput, terms, faults and recoveries.

Time runs from left to right through all panels, so that a dip and its cause stand in one column.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tests.torture.run_result import Episode, Lease, Recovery, RunResult, rates
from tests.torture.svg import Scale, Sheet

WIDTH, LEFT, RIGHT, TOP = 1680.0, 300.0, 24.0, 78.0
RATES, TERMS, ROW, GAP = 190.0, 90.0, 19.0, 46.0
GRID, FAINT, GOOD, BAD = "#e6e6e6", "#777", "#1a7f37", "#d1242f"
LINES = {"submitted": "#8250df", "started": "#0969da", "ended": "#1a7f37"}
TERM_COLOURS = ("#54aeff", "#0a4b8c", "#b6e3ff", "#1f77c9")
KINDS = {
    "server": "#f0883e",
    "node": "#3fb1a3",
    "network": "#c297ff",
    "database": "#e5534b",
    "clock": "#d4a72c",
    "disk": "#8c7a6b",
}
OTHER = "#999"


@dataclass(frozen=True)
class Frame:
    """Where a panel is on the sheet, and how time is laid out in it."""

    sheet: Sheet
    time: Scale
    top: float
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height


def draw(run: RunResult) -> str:
    """Return the picture of a run as SVG."""
    rows = _rows(run)
    faults_top = TOP + RATES + GAP + TERMS + GAP
    sheet = Sheet(WIDTH, faults_top + len(rows) * ROW + 58)
    time = Scale(0, max(run.seconds, 1), LEFT, WIDTH - RIGHT)
    upper = Frame(sheet, time, TOP, RATES)
    middle = Frame(sheet, time, TOP + RATES + GAP, TERMS)
    lower = Frame(sheet, time, faults_top, len(rows) * ROW)

    _title(sheet, run)
    for frame in (upper, middle, lower):
        _shade(frame, run.episodes)
        _columns(frame, run.seconds)
    _throughput(upper, run)
    _terms(middle, run.leases, run.seconds)
    _faults(lower, rows, run.episodes, run.recoveries)
    _hours(lower, run.seconds)
    return sheet.render()


def _title(sheet: Sheet, run: RunResult) -> None:
    late, wrong = len(run.late), len(run.violations)
    words = f"{run.tasks:,} tasks, {len(run.episodes)} faults in {run.seconds / 60:.1f} minutes"
    sheet.text(20, 32, words, font_size=20, font_weight="bold")
    verdict = f"{wrong} violations, {late} of {len(run.recoveries)} recoveries too late"
    sheet.text(20, 54, verdict, fill=GOOD if run.is_good else BAD, font_weight="bold")
    about = f"seed {run.seed} · commit {run.commit}"
    sheet.text(WIDTH - RIGHT, 32, about, text_anchor="end", fill=FAINT)
    place = WIDTH - RIGHT
    for kind in reversed(_kinds(run)):
        place -= 14 + 7.5 * len(kind)
        sheet.rect(place - 14, 45, 10, 10, KINDS.get(kind, OTHER))
        sheet.text(place, 54, kind, fill=FAINT)
        place -= 14


def _rows(run: RunResult) -> list[str]:
    """Return the faults, those of one kind beside each other."""
    kinds = _kinds(run)
    ordered = sorted(run.episodes, key=lambda one: (kinds.index(one.kind), one.fault))
    return list(dict.fromkeys(one.fault for one in ordered))


def _kinds(run: RunResult) -> list[str]:
    present = {one.kind for one in run.episodes}
    return [kind for kind in KINDS if kind in present] + sorted(present - set(KINDS))


def _shade(frame: Frame, episodes: tuple[Episode, ...]) -> None:
    for one in episodes:
        x = frame.time(one.began)
        width = max(frame.time(one.healed) - x, 1.0)
        colour = KINDS.get(one.kind, OTHER)
        frame.sheet.rect(x, frame.top, width, frame.height, colour, opacity="0.09")


def _columns(frame: Frame, seconds: float) -> None:
    for at in _ticks(seconds):
        x = frame.time(at)
        frame.sheet.line(x, frame.top, x, frame.bottom, GRID)


def _ticks(seconds: float) -> Iterator[int]:
    step = next(one for one in (10, 30, 60, 120, 300, 3600) if seconds / one <= 20 or one == 3600)
    return iter(range(0, int(seconds) + 1, step))


def _hours(frame: Frame, seconds: float) -> None:
    for at in _ticks(seconds):
        words = f"{at // 60}:{at % 60:02}"
        frame.sheet.text(frame.time(at), frame.bottom + 18, words, text_anchor="middle", fill=FAINT)
    middle = frame.time(seconds / 2)
    words = "minutes since the load began"
    frame.sheet.text(middle, frame.bottom + 38, words, text_anchor="middle", fill=FAINT)


def _throughput(frame: Frame, run: RunResult) -> None:
    width = max(1.0, run.seconds / 300)
    lines = {name: rates(run.happenings.get(name, ()), run.seconds, width) for name in LINES}
    # A batch or a backlog that is worked off makes single peaks; they may be cut off.
    ordered = sorted(itertools.chain.from_iterable(lines.values())) or [0.0]
    top = max(ordered[int(len(ordered) * 0.99)] * 1.25, 1.0)
    scale = Scale(0, top, frame.bottom, frame.top)
    _levels(frame, scale, top)
    for name, values in lines.items():
        points = [
            (frame.time((index + 0.5) * width), scale(min(value, top)))
            for index, value in enumerate(values)
            if (index + 0.5) * width <= run.seconds
        ]
        frame.sheet.path(points, LINES[name], stroke_width=1.5, stroke_linejoin="round")
    frame.sheet.text(20, frame.top + 10, "tasks per second", font_weight="bold")
    for index, (name, colour) in enumerate(LINES.items()):
        y = frame.top + 32 + 18 * index
        frame.sheet.line(20, y - 4, 40, y - 4, colour, stroke_width=3)
        frame.sheet.text(48, y, name)


def _levels(frame: Frame, scale: Scale, top: float) -> None:
    step = next(one for one in (1, 2, 5, 10, 20, 50, 100, 200, 500, 10**6) if top / one <= 6)
    for value in range(0, int(top) + 1, step):
        y = scale(value)
        frame.sheet.line(LEFT, y, WIDTH - RIGHT, y, GRID)
        frame.sheet.text(LEFT - 8, y + 4, str(value), text_anchor="end", fill=FAINT)


def _terms(frame: Frame, leases: tuple[Lease, ...], seconds: float) -> None:
    width = max(1.0, seconds / 300)
    terms = sorted({one.term for one in leases})
    highest = max(rates([one.at for one in leases], seconds, width), default=1.0) or 1.0
    bars = [0.0] * (int(seconds / width) + 1)
    scale = frame.height / highest
    for index, term in enumerate(terms):
        mine = rates([one.at for one in leases if one.term == term], seconds, width)
        for place, value in enumerate(mine):
            if value:
                bars[place] += value
                x = frame.time(place * width)
                wide = min(frame.time((place + 1) * width), WIDTH - RIGHT) - x
                y = frame.bottom - bars[place] * scale
                colour = TERM_COLOURS[index % len(TERM_COLOURS)]
                frame.sheet.rect(x, y, wide + 0.3, value * scale, colour, title=f"term {term}")
    _term_numbers(frame, leases)
    frame.sheet.text(20, frame.top + 10, "leases per second", font_weight="bold")
    frame.sheet.text(20, frame.top + 28, "a colour and number")
    frame.sheet.text(20, frame.top + 44, "for every term")


def _term_numbers(frame: Frame, leases: tuple[Lease, ...]) -> None:
    first: dict[int, float] = {}
    for one in leases:
        first[one.term] = min(first.get(one.term, one.at), one.at)
    last = -100.0
    for term, at in sorted(first.items()):
        x = frame.time(max(at, 0.0))
        frame.sheet.line(x, frame.top - 4, x, frame.bottom, "#0a4b8c", stroke_dasharray="2 3")
        if x - last > 16:
            frame.sheet.text(x, frame.top - 8, str(term), text_anchor="middle", font_size=11)
            last = x


def _faults(
    frame: Frame,
    rows: list[str],
    episodes: tuple[Episode, ...],
    recoveries: tuple[Recovery, ...],
) -> None:
    places = {name: frame.top + index * ROW for index, name in enumerate(rows)}
    for name, y in places.items():
        frame.sheet.line(20, y, WIDTH - RIGHT, y, GRID)
        frame.sheet.text(LEFT - 8, y + 14, name, text_anchor="end")
    for one in episodes:
        x = frame.time(one.began)
        wide = max(frame.time(one.healed) - x, 3.0)
        tip = f"{one.fault}: {one.on}, {one.began:.1f} to {one.healed:.1f} s"
        colour = KINDS.get(one.kind, OTHER)
        frame.sheet.rect(
            x, places[one.fault] + 4, wide, ROW - 8, colour, rx=2, opacity="0.6", title=tip
        )
    for recovery in recoveries:
        _mark(frame, places[recovery.fault] + ROW / 2, recovery)


def _mark(frame: Frame, y: float, recovery: Recovery) -> None:
    """Draw how long it took, from what it is counted from to the dot where it worked again."""
    colour = GOOD if recovery.is_in_time else BAD
    took = recovery.target if recovery.took is None else recovery.took
    begin = frame.time(recovery.since)
    end = min(frame.time(recovery.since + took), WIDTH - RIGHT)
    frame.sheet.line(begin, y, end, y, colour, stroke_width=2)
    frame.sheet.circle(end, y, 3, colour, title=f"{recovery.clock} after {took:.1f} s")
    words = "never" if recovery.took is None else f"{recovery.took:.1f}"
    halo = {"stroke": "#fff", "stroke_width": 3, "paint_order": "stroke"}
    frame.sheet.text(end + 5, y + 4, words, fill=colour, font_size=10, **halo)
