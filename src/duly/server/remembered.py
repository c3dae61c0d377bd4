"""What is known of the tasks in lines without reading them.

What was just stored into a line that was empty is all there is in it. What a round has read and
left are the first of their line, and the place from which the next look may go on. All of it
holds until something comes into the line that may go before it; whoever stores, releases or
changes a task says so. A task that has left its line meanwhile is not leased.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import datetime

from duly.policy.queueing import Rank, rank
from duly.server.lines import Pair
from duly.store.waiting import Head

MOST_STORED = 16
"""How many tasks of a line are remembered until the next round: more are read as quickly."""

Place = tuple[datetime] | Rank
"""Where something is in its line: a time, before all that must start by then, or a task."""


class Remembered:
    """Tasks by line, between rounds and during one."""

    def __init__(self) -> None:
        self._stored: dict[Pair, list[Head]] = {}
        """All that is in some lines, as far as one has heard: they were empty before it came.

        As it came; who looks at it has to put it in order."""
        self._is_sure = False
        """Whether a line of which nothing is known is empty."""
        self._ahead: dict[Pair, list[Head]] = {}
        """The first tasks of some lines, which an earlier round has read and left."""
        self._first: dict[Pair, Head] = {}
        """Tasks before which all of their line have gone; they may have, too."""
        self._read: Mapping[Pair, list[Head]] = {}
        """What the last window was chosen from."""
        self._whole: Set[Pair] = frozenset()
        """The lines of which that was all there is."""
        self._noted: dict[Pair, Place] | None = None
        """Where something may have come into lines since then; None between two rounds."""
        self.is_in_use = False
        """Whether some of what the last window was chosen from was remembered, and may be gone."""

    def note(self, pair: Pair, place: Place) -> None:
        """Forget what of a line something goes before that has come into it."""
        ahead, first = self._ahead.get(pair), self._first.get(pair)
        if ahead is not None and place < rank(ahead[-1]):
            del self._ahead[pair]
        if first is not None and place < rank(first):
            del self._first[pair]
        if self._noted is not None:
            self._noted[pair] = min(place, self._noted.get(pair, place))

    def note_unseen(self, pair: Pair, since: datetime) -> None:
        """Forget what goes before something of which no more is known than its time."""
        self._stored.pop(pair, None)
        self.note(pair, (since,))

    def note_stored(self, pair: Pair, head: Head, *, is_new: bool) -> None:
        """Remember a task that was just stored; `is_new` says that nothing is known of its line."""
        stored = self._stored.get(pair)
        if stored is None and self._is_sure and is_new:
            stored = self._stored[pair] = []
        if stored is not None:
            stored.append(head)
            if len(stored) > MOST_STORED:
                del self._stored[pair]
        self.note(pair, rank(head))

    def forget(self) -> None:
        """Forget all of it: the lines are being counted."""
        self._stored, self._ahead, self._first = {}, {}, {}
        self._is_sure = False

    def be_sure(self) -> None:
        """Take a line of which nothing is known for empty: they were counted."""
        self._is_sure = True

    def doubt(self) -> None:
        """Do so no more: some lines were left out that have something."""
        self._is_sure = False

    def begin(self, turn: Iterable[Pair]) -> "Window":
        """Return what is known of the lines of a round, which is not remembered any more.

        What is noted from now on may have come too late for it.
        """
        self.forget_window()
        self._noted = {}
        stored, self._stored = self._stored, {}
        window = Window(
            {pair: sorted(stored[pair], key=rank) for pair in turn if pair in stored},
            {pair: self._ahead.pop(pair) for pair in turn if pair in self._ahead},
            {pair: self._first.pop(pair) for pair in turn if pair in self._first},
            is_sure=self._is_sure,
        )
        self._is_sure = False
        self.is_in_use = bool(window.heads)
        return window

    def end(self, window: "Window") -> None:
        """Take in all that a round has read."""
        self._is_sure = window.is_sure
        self._read, self._whole = window.heads, window.whole

    def keep(self, leased: Set[int]) -> Iterator[tuple[Pair, Head | None]]:
        """Remember what of the last window's lines was not leased; all that was tried was.

        Yields from which task on there is something in a line, if nothing has come into it
        meanwhile; None for a line that is empty now.
        """
        since = self._noted or {}
        for pair, found in self._read.items():
            left = [head for head in found if head.id not in leased]
            noted = since.get(pair)
            if left and (noted is None or noted > rank(left[-1])):
                self._ahead[pair] = left
            elif not left and noted is None and pair in self._whole:
                yield pair, None
                continue
            if found:
                first = left[0] if left else found[-1]
                if noted is None or noted > rank(first):
                    self._first[pair] = first
                if noted is None:
                    yield pair, first
        self.forget_window()

    def forget_window(self) -> None:
        """Forget what the last window was chosen from."""
        self._read, self._noted, self.is_in_use = {}, None, False


class Window:
    """What is known of the lines of one round, before and after they were read."""

    def __init__(
        self,
        stored: dict[Pair, list[Head]],
        ahead: dict[Pair, list[Head]],
        first: dict[Pair, Head],
        *,
        is_sure: bool,
    ) -> None:
        self.heads = ahead | stored
        """The first tasks of each line, by rank."""
        self.first = first
        """Where to go on in a line."""
        self.asked = {pair: len(found) for pair, found in ahead.items() if pair not in stored}
        """For how many tasks of a line was asked; more may be behind them if there are as many."""
        self.is_sure = is_sure
        self._stored = stored.keys()

    def add(self, asked: Mapping[Pair, int], read: Iterable[Head]) -> None:
        """Take in what was read of some lines, so many tasks of each at most."""
        self.heads.update({pair: [] for pair in asked})
        for head in read:
            self.heads[head.tenant_id, head.shape_id].append(head)
        self.asked.update(asked)

    @property
    def whole(self) -> Set[Pair]:
        """Return the lines of which all is known."""
        return {
            pair
            for pair, found in self.heads.items()
            if pair in self._stored or len(found) < self.asked[pair]
        }
