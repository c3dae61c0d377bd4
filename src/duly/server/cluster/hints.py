"""The message that servers broadcast: what may have changed, never what it changed to.

A hint names the ids that it is about as long as these are few, and None ("any of them")
otherwise, so that a message stays small whatever happens. Its receiver reads the database;
a server that misses it finds the same at its next poll.
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")
MAX_NAMED_IDS = 90
"""Ids that a hint names per field: a NOTIFY payload must be shorter than 8,000 bytes."""

Ids = frozenset[int] | None
"""The ids that a hint is about; None stands for any of them."""
Subqueues = frozenset[tuple[int, int]] | None
"""Subqueues by tenant and shape that may have tasks; None stands for any of them."""
NO_IDS: frozenset[int] = frozenset()
NO_SUBQUEUES: frozenset[tuple[int, int]] = frozenset()


class Hint(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"subqueues": "pairs"}
):
    """What may have changed on a server. Receivers ignore fields that they do not know."""

    work: bool = False
    """A task may be placeable: one waits, or resources were freed."""
    subqueues: Subqueues = NO_SUBQUEUES
    """Which subqueues may have tasks. Called `pairs` in the message."""
    due: bool = False
    """A task may become due earlier than the leader expects, or a node is gone."""
    incarnations: Ids = NO_IDS
    """Incarnations of agents whose polls have something to return."""
    tasks: Ids = NO_IDS
    """Tasks whose status has changed."""
    credentials: bool = False
    """Cached keys, tenants or plans may be stale."""

    def __or__(self, other: "Hint") -> "Hint":
        return Hint(
            work=self.work or other.work,
            subqueues=_union(self.subqueues, other.subqueues),
            due=self.due or other.due,
            incarnations=_union(self.incarnations, other.incarnations),
            tasks=_union(self.tasks, other.tasks),
            credentials=self.credentials or other.credentials,
        )


EMPTY_HINT = Hint()
EVERYTHING = Hint(
    work=True, subqueues=None, due=True, incarnations=None, tasks=None, credentials=True
)
"""Assumed when hints may have been missed."""


def encode(hint: Hint) -> str:
    """Return `hint` as the payload of a NOTIFY."""
    return msgspec.json.encode(hint).decode()


def decode(payload: str) -> Hint:
    """Return the hint of a peer; a payload that cannot be decoded may mean anything."""
    try:
        return msgspec.json.decode(payload, type=Hint)
    except msgspec.DecodeError:
        return EVERYTHING


def _union(first: frozenset[T] | None, second: frozenset[T] | None) -> frozenset[T] | None:
    if first is None or second is None or len(first | second) > MAX_NAMED_IDS:
        return None
    return first | second
