"""Draws the order of faults from a seed, so that a run can be repeated.

Faults come in two lanes that go on side by side, one for servers and databases and one for
nodes, so that pairs overlap which may well happen together: a node freezes while PostgreSQL
fails over. Within a lane one fault follows the other, because two dead databases of two, or no
server at all, would show nothing. A fault whose recovery is promised for an otherwise healthy
cluster has both lanes to itself.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

PAUSE = (0.5, 4.0)


@dataclass(frozen=True)
class WeightedFault:
    """A fault that can be drawn; `count` is how often it is in a deck."""

    name: str
    lane: str
    is_alone: bool = False
    count: int = 1


@dataclass(frozen=True)
class Step:
    """A fault that was drawn, and the seconds of peace before it."""

    card: WeightedFault
    pause: float


def draw(
    cards: Iterable[WeightedFault], lane: str, seed: int, *, decks: int | None = None
) -> Iterator[Step]:
    """Draw the faults of one lane, deck after deck, each in an order of its own.

    There is no end to it, unless it is said how many `decks` there are.
    """
    dice = Random(f"{seed}/{lane}")
    deck = [card for card in cards if card.lane == lane for _ in range(card.count)]
    rounds = itertools.count() if decks is None else range(decks)
    for _ in rounds if deck else ():
        for card in _shuffled(deck, dice):
            yield Step(card, dice.uniform(*PAUSE))


def lanes(cards: Iterable[WeightedFault]) -> list[str]:
    """Return the lanes that there are cards for."""
    return list(dict.fromkeys(card.lane for card in cards))


def _shuffled(deck: list[WeightedFault], dice: Random) -> list[WeightedFault]:
    """Shuffle, so that no card follows itself where that can be helped."""
    order = dice.sample(deck, len(deck))
    for place, (before, after) in enumerate(itertools.pairwise(order)):
        if before == after:
            other = dice.randrange(len(order))
            order[place + 1], order[other] = order[other], order[place + 1]
    return order
