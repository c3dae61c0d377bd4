"""Draws a simulation as SVG: waits, utilisation and shares over time."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from duly.sim.recorder import Recorder
from duly.sim.report import Report, percentile, shares_over_time
from duly.sim.simulation import Simulation

WIDTH, PANEL_HEIGHT, GAP, LEFT, TOP = 960, 170, 58, 70, 46
MAX_POINTS = 240
MAX_TENANTS = 8
COLOURS = (
    "#0b6aa2", "#d1790f", "#2e7d42", "#b3261e", "#7a4fa3", "#8a6d3b", "#c2577f", "#5b6770",
    "#b9b9b9",
)  # fmt: skip
STYLE = (
    "text{font-family:sans-serif;font-size:12px;fill:#1c1c1c}.t{font-size:15px}.a{fill:#666}"
    ".r{text-anchor:end}.m{text-anchor:middle}.g{stroke:#e4e4e4}path{fill:none;stroke-width:1.6}"
)
Series = tuple[str, Sequence[float]]


def draw(simulation: Simulation, report: Report) -> Iterator[str]:
    """Yield the lines of the SVG document."""
    workload, recorder = simulation.workload, simulation.recorder
    shares = shares_over_time(workload, recorder)
    count = min(MAX_POINTS, recorder.interval_count)
    panels: list[tuple[str, str, list[Series], bool]] = [
        ("95th percentile of the wait, by time of arrival", "s", _waits(simulation, count), False),
        ("Utilisation", "%", [("fleet", _thin(_percent(shares.used), count))], False),
        ("Shares of the fleet", "%", _shares(simulation, shares.by_tenant, count), True),
    ]
    height = TOP + len(panels) * (PANEL_HEIGHT + GAP)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img">'
    )
    title = (
        f"{report.workload}: policy {report.policy}, {report.nodes:,} nodes, "
        f"{report.tasks:,} tasks, seed {report.seed}"
    )
    yield f"<title>{escape(title)}</title><style>{STYLE}</style>"
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    yield f'<text class="t" x="{LEFT}" y="24">{escape(title)}</text>'
    for number, (name, unit, series, is_stacked) in enumerate(panels):
        top = TOP + number * (PANEL_HEIGHT + GAP) + 24
        yield from _panel(name, unit, series, top, workload.duration, is_stacked=is_stacked)
    yield "</svg>"


def _panel(
    name: str, unit: str, series: Sequence[Series], top: float, duration: float, *, is_stacked: bool
) -> Iterator[str]:
    highest = max((value for _, values in series for value in values), default=0.0)
    if unit == "%":
        highest = 100.0
    scale = _round_up(highest)
    right, bottom = WIDTH - 190, top + PANEL_HEIGHT
    yield f'<text x="{LEFT}" y="{top - 8:g}">{escape(name)}</text>'
    for part in (0, 0.5, 1):
        y = bottom - part * PANEL_HEIGHT
        yield f'<line class="g" x1="{LEFT}" x2="{right}" y1="{y:g}" y2="{y:g}"/>'
        yield f'<text class="a r" x="{LEFT - 6}" y="{y + 4:g}">{part * scale:g} {unit}</text>'
    for part in (0, 0.25, 0.5, 0.75, 1):
        x = LEFT + part * (right - LEFT)
        label = _clock(part * duration)
        yield f'<text class="a m" x="{x:g}" y="{bottom + 16:g}">{label}</text>'
    base = [0.0] * max((len(values) for _, values in series), default=0)
    for number, (label, values) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        tops = [low + value for low, value in zip(base, values, strict=True)]
        line = _points(tops if is_stacked else values, right, bottom, scale)
        if is_stacked:
            below = _points(base, right, bottom, scale)
            area = f"M{'L'.join([*line, *reversed(below)])}Z"
            yield f'<path d="{area}" style="fill:{colour};stroke:none" opacity="0.8"/>'
            base = tops
        elif line:
            yield f'<path d="M{"L".join(line)}" stroke="{colour}"/>'
        y = top + 10 + 17 * number
        yield f'<rect x="{right + 14}" y="{y - 9:g}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{right + 30}" y="{y:g}">{escape(label[:22])}</text>'


def _points(values: Sequence[float], right: float, bottom: float, scale: float) -> list[str]:
    step = (right - LEFT) / max(1, len(values))
    return [
        f"{LEFT + (number + 0.5) * step:.1f} {bottom - value / scale * PANEL_HEIGHT:.1f}"
        for number, value in enumerate(values)
    ]


def _waits(simulation: Simulation, count: int) -> list[Series]:
    """Return the 95th percentile of the waits of each class."""
    workload, recorder = simulation.workload, simulation.recorder
    length = workload.duration / count
    series: list[Series] = []
    for class_id, name in enumerate(workload.classes):
        waits: list[list[float]] = [[] for _ in range(count)]
        for at, wait in _waits_of(recorder, class_id):
            waits[min(count - 1, int(at / length))].append(wait)
        if any(waits):
            series.append((name, [percentile(sorted(w), 0.95) if w else 0.0 for w in waits]))
    return series[: len(COLOURS)]


def _waits_of(recorder: Recorder, class_id: int) -> Iterator[tuple[float, float]]:
    for key, waits in recorder.waits.items():
        if key[0] == class_id:
            yield from zip(recorder.arrived[key], waits, strict=True)


def _shares(simulation: Simulation, by_tenant: dict[int, list[float]], count: int) -> list[Series]:
    """Return the shares of the tenants that used most, and of all others together."""
    names = simulation.workload.tenants
    ordered = sorted(by_tenant, key=lambda tenant_id: -sum(by_tenant[tenant_id]))
    series: list[Series] = [
        (names[tenant_id], _thin(_percent(by_tenant[tenant_id]), count))
        for tenant_id in ordered[:MAX_TENANTS]
    ]
    if others := [by_tenant[tenant_id] for tenant_id in ordered[MAX_TENANTS:]]:
        together = [sum(each) for each in zip(*others, strict=True)]
        series.append((f"{len(others)} others", _thin(_percent(together), count)))
    return series


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]


def _thin(values: Sequence[float], count: int) -> list[float]:
    """Return `count` means of successive values."""
    bounds = [len(values) * number // count for number in range(count + 1)]
    return [sum(values[low:high]) / (high - low) for low, high in pairwise(bounds)]


def _round_up(value: float) -> float:
    """Return a round number that is not below `value`."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while value > 0 and power > value:
        power /= 10
    return next((step * power for step in (1, 2, 5, 10) if step * power >= value), 1.0) or 1.0


def _clock(seconds: float) -> str:
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.0f}d"
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.0f}h"
    return f"{seconds / 60:.0f}m" if seconds >= 120 else f"{seconds:.0f}s"
