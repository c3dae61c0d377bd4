"""What this server has leased to nodes that poll here, until a poll takes it along.

What a node should hold is said by the database, and a poll that looks there is always
right. But the server that has just made a lease knows it without looking: it puts the
assignment into the box of that incarnation, and the poll that waits, or the next one,
is answered from there. A box is only a short cut, and nothing is given from it twice.
Every poll says which token was the highest that its agent was ever given. If that is not
what this server gave last, an answer was lost or came from another server, and it looks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

import msgspec

from duly import clock, wire

FORGOTTEN = 60.0
"""Seconds after which nobody polls here for an incarnation any more."""


class Box(msgspec.Struct, eq=False):
    """What is known here of one incarnation, from its last look on."""

    node_id: int
    told: set[wire.AttemptRef] = msgspec.field(default_factory=set)
    """The stops that polls have been answered with."""
    starts: list[wire.Assignment] = msgspec.field(default_factory=list)
    given: int = 0
    """The highest token that the agent has, if it got what it was answered last."""
    seen: int = 0
    """The highest token that a look has found: what is not above it is no news."""
    looked_at: float = float("-inf")
    must_look: bool = True
    poll: wire.Poll | None = None
    """The poll that came last; only that one takes from the box, an older one is nobody's."""

    def is_good(self, patience: float) -> bool:
        """Say whether a poll may be answered, or wait, without a look."""
        return not self.must_look and clock.monotonic() - self.looked_at < patience

    @contextmanager
    def claim(self, poll: wire.Poll) -> Iterator[None]:
        """Give the box to `poll` until it is answered; whoever had it is nobody's any more."""
        if self.given != poll.latest:
            self.must_look = True
        self.poll = poll
        try:
            yield
        finally:
            if self.poll is poll:
                self.poll = None

    def begin_look(self) -> float:
        """Begin a look, which sees all that is in the box; good only once it has ended."""
        self.looked_at = float("-inf")
        self.must_look = False
        self.starts = []
        return clock.monotonic()

    def end_look(self, began: float, tokens: Iterable[int]) -> None:
        """End a look that found `tokens`: keep only what was leased after it."""
        self.looked_at = began
        self.seen = max(self.seen, max(tokens, default=0))
        self.starts = self._fresh(self.starts)

    def put(self, starts: Sequence[wire.Assignment]) -> None:
        """Add what has been leased, unless a look was faster."""
        self.starts += self._fresh(starts)

    def _fresh(self, starts: Sequence[wire.Assignment]) -> list[wire.Assignment]:
        return [start for start in starts if start.ref.token > max(self.seen, self.given)]

    def take(self) -> list[wire.Assignment]:
        """Give out everything, once."""
        starts, self.starts = self.starts, []
        return starts

    def note(self, poll: wire.Poll, orders: wire.Orders) -> None:
        """Remember what `poll` is answered with; stops for as long as the agent holds them."""
        self.told.intersection_update(poll.held)
        self.told.update(stop.ref for stop in orders.stop)
        self.given = max([poll.latest or 0, *(start.ref.token for start in orders.start)])


class Deliveries:
    """The boxes of the incarnations that poll at this server."""

    def __init__(self) -> None:
        self._boxes: dict[int, Box] = {}

    def open(self, node_id: int, poll: wire.Poll) -> Box:
        """Return the box for a poll that has come; of another node it is never shown."""
        box = self._boxes.get(poll.incarnation)
        if box is None or box.node_id != node_id:
            # Kept only once a look has found that the incarnation is this node's.
            return Box(node_id)
        return box

    def keep(self, incarnation: int, box: Box) -> None:
        """Remember a box whose node may ask for this incarnation, as a look has shown."""
        if self._boxes.get(incarnation) is not box:
            now = clock.monotonic()
            old = [one for one, kept in self._boxes.items() if now - kept.looked_at > FORGOTTEN]
            for one in old:
                del self._boxes[one]
            self._boxes[incarnation] = box

    def drop(self, incarnation: int, box: Box) -> None:
        """Forget the box of an incarnation that has ended."""
        if self._boxes.get(incarnation) is box:
            del self._boxes[incarnation]

    def awaited(self, incarnations: Iterable[int], patience: float) -> set[int]:
        """Return those of `incarnations` whose next poll can be answered from its box."""
        now = clock.monotonic()
        return {
            one
            for one in incarnations
            if (box := self._boxes.get(one)) is not None and now - box.looked_at < patience
        }

    def put(self, leased: Mapping[int, Sequence[wire.Assignment]]) -> None:
        """Put assignments into the boxes of their incarnations; call it after the commit."""
        for incarnation, starts in leased.items():
            box = self._boxes.get(incarnation)
            if box is not None:
                box.put(starts)

    def doubt(self, incarnations: Set[int] | None) -> None:
        """Let the next poll of these incarnations look, or of all: something else has happened."""
        for one in self._boxes if incarnations is None else incarnations:
            box = self._boxes.get(one)
            if box is not None:
                box.must_look = True
