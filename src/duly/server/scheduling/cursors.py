"""Where the next round reads on in each subqueue: everything before that task has gone.

Tasks that have left a subqueue stay in the index until they are vacuumed, and for as long as
somebody holds an old snapshot; without a place to begin, every round would walk over them. A
cursor holds until something comes into the subqueue that ranks before it.
"""

from collections.abc import Mapping
from datetime import datetime

from duly.policy.queueing import Rank, rank
from duly.server.lines import Pair
from duly.store.waiting import Head

Place = tuple[datetime] | Rank
"""Where something is in its subqueue: a time, before all that must start by then, or a task."""


class Cursors:
    """A task of each subqueue before which all have gone; it may have, too."""

    def __init__(self) -> None:
        self._at: dict[Pair, Head] = {}
        self._noted: dict[Pair, Place] = {}
        """The first that may have come into a subqueue since `begin`."""

    def note(self, pair: Pair, place: Place) -> None:
        """Forget a cursor that something has come before."""
        if (head := self._at.get(pair)) is not None and place < rank(head):
            del self._at[pair]
        self._noted[pair] = min(place, self._noted.get(pair, place))

    def begin(self) -> Mapping[Pair, Head]:
        """Return the cursors for a round; what is noted from now on may come too late for it."""
        self._noted = {}
        return self._at

    def is_noted(self, pair: Pair) -> bool:
        """Say whether something may have come into a subqueue since `begin`."""
        return pair in self._noted

    def advance(self, pair: Pair, head: Head) -> None:
        """Go on from a task next time, unless something has come before it meanwhile."""
        noted = self._noted.get(pair)
        if noted is None or noted > rank(head):
            self._at[pair] = head
        else:
            self._at.pop(pair, None)

    def forget(self) -> None:
        """Begin every subqueue anew: they are being counted."""
        self._at = {}
