"""Holds the assignments that this server has leased to nodes until a poll takes them.

The database says which attempts a node should hold, and a poll that reads it is always right.
A mailbox is a short cut: the server that has just leased attempts puts their assignments into the
mailbox of the incarnation, and the waiting poll, or the next one, is answered without a read. An
assignment is taken from a mailbox at most once. Every poll carries the highest token that its
agent has received; if that is not the token that this server sent last, a response was lost or
came from another server, and the poll reads the database.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

import msgspec

from duly import clock, wire

MAILBOX_IDLE_SECONDS = 60.0
"""A mailbox is dropped if no poll has read the database for this long."""


class Mailbox(msgspec.Struct, eq=False):
    """The undelivered assignments of one incarnation, valid since its last read."""

    node_id: int
    sent_stops: set[wire.AttemptRef] = msgspec.field(default_factory=set)
    """The stops that polls were answered with."""
    starts: list[wire.Assignment] = msgspec.field(default_factory=list)
    sent_token: int = 0
    """The highest token that the agent has, if it received the last response."""
    read_token: int = 0
    """The highest token that a read has returned: assignments up to it are delivered by reads."""
    read_at: float = float("-inf")
    is_stale: bool = True
    """Whether the next poll must read the database."""
    poll: wire.PollRequest | None = None
    """The poll that came last; it alone takes from the mailbox, older ones were abandoned."""

    def is_fresh(self, max_age: float) -> bool:
        """Return True if a poll may be answered, or wait, without a read."""
        return not self.is_stale and clock.monotonic() - self.read_at < max_age

    @contextmanager
    def claim(self, poll: wire.PollRequest) -> Iterator[None]:
        """Give the mailbox to `poll` until it is answered, and take it from any earlier poll."""
        if self.sent_token != poll.latest:
            self.is_stale = True
        self.poll = poll
        try:
            yield
        finally:
            if self.poll is poll:
                self.poll = None

    def begin_read(self) -> float:
        """Empty the mailbox for a read, which returns all of it; fresh only once that has ended."""
        self.read_at = float("-inf")
        self.is_stale = False
        self.starts = []
        return clock.monotonic()

    def end_read(self, began_at: float, tokens: Iterable[int]) -> None:
        """End a read that returned `tokens`: keep only what was leased after it."""
        self.read_at = began_at
        self.read_token = max(self.read_token, max(tokens, default=0))
        self.starts = self._undelivered(self.starts)

    def put(self, starts: Sequence[wire.Assignment]) -> None:
        """Add leased assignments, except those that a read has returned already."""
        self.starts += self._undelivered(starts)

    def _undelivered(self, starts: Sequence[wire.Assignment]) -> list[wire.Assignment]:
        return [
            start for start in starts if start.ref.token > max(self.read_token, self.sent_token)
        ]

    def take(self) -> list[wire.Assignment]:
        """Empty the mailbox and return its assignments."""
        starts, self.starts = self.starts, []
        return starts

    def record_response(self, poll: wire.PollRequest, orders: wire.PollResponse) -> None:
        """Record the response to `poll`; stops are kept for as long as the agent holds them."""
        self.sent_stops.intersection_update(poll.held)
        self.sent_stops.update(stop.ref for stop in orders.stop)
        self.sent_token = max([poll.latest or 0, *(start.ref.token for start in orders.start)])


class Mailboxes:
    """The mailboxes of the incarnations that poll this server."""

    def __init__(self) -> None:
        self._mailboxes: dict[int, Mailbox] = {}

    def open(self, node_id: int, poll: wire.PollRequest) -> Mailbox:
        """Return the mailbox for a poll, never that of another node's incarnation."""
        mailbox = self._mailboxes.get(poll.incarnation)
        if mailbox is None or mailbox.node_id != node_id:
            # Kept only once a read has confirmed that the incarnation is this node's.
            return Mailbox(node_id)
        return mailbox

    def keep(self, incarnation: int, mailbox: Mailbox) -> None:
        """Keep a mailbox once a read has shown that the incarnation is its node's."""
        if self._mailboxes.get(incarnation) is not mailbox:
            now = clock.monotonic()
            idle = [
                key
                for key, kept in self._mailboxes.items()
                if now - kept.read_at > MAILBOX_IDLE_SECONDS
            ]
            for key in idle:
                del self._mailboxes[key]
            self._mailboxes[incarnation] = mailbox

    def drop(self, incarnation: int, mailbox: Mailbox) -> None:
        """Drop the mailbox of an incarnation that has ended."""
        if self._mailboxes.get(incarnation) is mailbox:
            del self._mailboxes[incarnation]

    def usable(self, incarnations: Iterable[int], max_age: float) -> set[int]:
        """Return those of `incarnations` whose next poll can be answered from its mailbox."""
        now = clock.monotonic()
        return {
            incarnation
            for incarnation in incarnations
            if (mailbox := self._mailboxes.get(incarnation)) is not None
            and now - mailbox.read_at < max_age
        }

    def put(self, leased: Mapping[int, Sequence[wire.Assignment]]) -> None:
        """Put assignments into the mailboxes of their incarnations. Call it after the commit."""
        for incarnation, starts in leased.items():
            mailbox = self._mailboxes.get(incarnation)
            if mailbox is not None:
                mailbox.put(starts)

    def invalidate(self, incarnations: Set[int] | None) -> None:
        """Make the next poll of `incarnations`, or of all if None, read the database."""
        for incarnation in self._mailboxes if incarnations is None else incarnations:
            mailbox = self._mailboxes.get(incarnation)
            if mailbox is not None:
                mailbox.is_stale = True
