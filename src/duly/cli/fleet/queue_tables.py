"""Prints queues as tables."""

from collections.abc import Iterable, Iterator
from datetime import timedelta

from duly.cli.output.tables import print_table
from duly.cli.output.text import format_time, now
from duly.client.shapes.queue_shapes import Queue
from duly.duration import format_duration

NUMBERS = ("LEVEL", "MAX SHARE", "WAITING", "OLDEST", "IN/MIN", "OUT/MIN")


def print_queues(queues: Iterable[Queue]) -> None:
    """Print a list of queues."""
    print_table(
        ("NAME", "LEVEL", "STATE", "HOURS", "MAX SHARE", "WAITING", "OLDEST", "IN/MIN", "OUT/MIN"),
        (
            (
                queue["name"],
                str(queue["level"]),
                _state(queue),
                _hours(queue),
                _share(queue),
                str(queue["waiting"]),
                _oldest(queue),
                f"{queue['in_per_minute']:g}",
                f"{queue['out_per_minute']:g}",
            )
            for queue in queues
        ),
        right=NUMBERS,
    )


def queue_details(queue: Queue) -> Iterator[tuple[str, str]]:
    """Yield the fields of a queue for display."""
    yield "name", queue["name"]
    yield "level", str(queue["level"])
    state = _state(queue)
    if queue["paused"]:
        state = f"paused by {queue['paused_by']} at {format_time(queue['paused_at'], now())}"
    yield "state", state
    yield "off peak", "yes" if queue["off_peak"] else "no"
    yield "max share", _share(queue) or "no limit"
    yield "hours", _hours(queue) or "always"
    yield "waiting", str(queue["waiting"])
    yield "oldest wait", _oldest(queue)
    yield "in per minute", f"{queue['in_per_minute']:g}"
    yield "out per minute", f"{queue['out_per_minute']:g}"


def _state(queue: Queue) -> str:
    return "paused" if queue["paused"] else "active"


def _hours(queue: Queue) -> str:
    return "" if queue["hours"] is None else f"{queue['hours']} {queue['timezone']}"


def _share(queue: Queue) -> str:
    return "" if queue["max_share"] is None else f"{100 * queue['max_share']:.4g} %"


def _oldest(queue: Queue) -> str:
    wait = queue["oldest_wait"]
    return "" if wait is None else format_duration(timedelta(seconds=int(wait)))
