"""Decides whether another password may be tried, from how often it went wrong before.

Each name has a few tries in hand, which come back with time. A try is taken before the
password is looked at, so that many at once are no more than a few one by one; a right
password gives it back.
"""

from dataclasses import dataclass

TRIES = 10
"""How many may go wrong in a row."""
EVERY = 30.0
"""Seconds after which one comes back."""


@dataclass(frozen=True, slots=True)
class Guesses:
    """How many tries were left at an instant, in seconds of a steady clock."""

    at: float
    left: float = TRIES


@dataclass(frozen=True, slots=True)
class Taken:
    """What is left after a try; with a `wait` in seconds, none could be taken."""

    left_over: Guesses
    wait: float = 0.0


def take(guesses: Guesses, now: float) -> Taken:
    """Take a try, or say how long it is until there is one."""
    left = _left(guesses, now)
    if left < 1:
        return Taken(Guesses(now, left), wait=(1 - left) * EVERY)
    return Taken(Guesses(now, left - 1))


def give_back(guesses: Guesses, now: float) -> Guesses:
    """Return the tries of a name whose password was right."""
    return Guesses(now, min(_left(guesses, now) + 1, TRIES))


def _left(guesses: Guesses, now: float) -> float:
    """Return how many there are at `now`: those that came back included, never more than all."""
    return min(guesses.left + max(now - guesses.at, 0.0) / EVERY, TRIES)
