"""What servers tell each other: that there is something to look at, never what it is.

A message names what it is about as long as that is little, and says "any of them"
otherwise, so that it stays small whatever happens. Whoever hears it looks into the
database; whoever does not, looks there a little later anyway.
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")
MOST = 90
"""How many of a kind one message names: PostgreSQL carries less than 8,000 bytes at once."""

Ids = frozenset[int] | None
"""Ids that are meant; None stands for any, for there were too many to name."""
Pairs = frozenset[tuple[int, int]] | None
"""Pairs of tenant and shape that may have work; None stands for any."""
NONE: frozenset[int] = frozenset()
NO_PAIRS: frozenset[tuple[int, int]] = frozenset()


class News(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has happened on a server; fields that an older one does not know are passed over."""

    work: bool = False
    """Something may be placed: a task waits, or something has become free."""
    pairs: Pairs = NO_PAIRS
    due: bool = False
    """The time of a task may come earlier than the leader knows, or a node has gone."""
    incarnations: Ids = NONE
    """Their polls have something to say."""
    tasks: Ids = NONE
    """They have ended or moved on."""
    credentials: bool = False
    """What is remembered of keys, tenants or plans may not hold any more."""

    def __or__(self, other: "News") -> "News":
        return News(
            work=self.work or other.work,
            pairs=_join(self.pairs, other.pairs),
            due=self.due or other.due,
            incarnations=_join(self.incarnations, other.incarnations),
            tasks=_join(self.tasks, other.tasks),
            credentials=self.credentials or other.credentials,
        )


EVERYTHING = News(work=True, pairs=None, due=True, incarnations=None, tasks=None, credentials=True)
"""What to assume when something may have been missed."""


def write(news: News) -> str:
    """Return `news` as text that PostgreSQL can carry."""
    return msgspec.json.encode(news).decode()


def read(text: str) -> News:
    """Return what another server told; what cannot be understood may mean anything."""
    try:
        return msgspec.json.decode(text, type=News)
    except msgspec.DecodeError:
        return EVERYTHING


def _join(one: frozenset[T] | None, other: frozenset[T] | None) -> frozenset[T] | None:
    if one is None or other is None or len(one | other) > MOST:
        return None
    return one | other
