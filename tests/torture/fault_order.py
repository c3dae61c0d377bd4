"""Draws the order of faults from a seed, so that a run can be repeated.

Faults are injected in two parallel lanes, one for servers and databases and one for nodes, so that
plausible pairs overlap: a node freezes while PostgreSQL fails over. Within a lane faults follow one
another, because a run without any database or server would show nothing. A fault whose recovery is
promised for an otherwise healthy cluster excludes the other lane.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

PAUSE_SECONDS = (0.5, 4.0)


@dataclass(frozen=True)
class WeightedFault:
    """A fault with its lane; `count` is how often it occurs in a repetition."""

    name: str
    lane: str
    is_exclusive: bool = False
    count: int = 1


@dataclass(frozen=True)
class Step:
    """A drawn fault, and the pause before it in seconds."""

    fault: WeightedFault
    pause: float


def draw(
    faults: Iterable[WeightedFault], lane: str, seed: int, *, repetitions: int | None = None
) -> Iterator[Step]:
    """Draw the faults of one lane, each repetition in a new order.

    Endless, unless `repetitions` is given.
    """
    rng = Random(f"{seed}/{lane}")
    lane_faults = [fault for fault in faults if fault.lane == lane for _ in range(fault.count)]
    numbers = itertools.count() if repetitions is None else range(repetitions)
    for _ in numbers if lane_faults else ():
        for fault in _shuffled(lane_faults, rng):
            yield Step(fault, rng.uniform(*PAUSE_SECONDS))


def lanes(faults: Iterable[WeightedFault]) -> list[str]:
    """Return the lanes of the faults."""
    return list(dict.fromkeys(fault.lane for fault in faults))


def _shuffled(lane_faults: list[WeightedFault], rng: Random) -> list[WeightedFault]:
    """Shuffle; a fault rarely follows itself."""
    order = rng.sample(lane_faults, len(lane_faults))
    for index, (before, after) in enumerate(itertools.pairwise(order)):
        if before == after:
            other = rng.randrange(len(order))
            order[index + 1], order[other] = order[other], order[index + 1]
    return order
