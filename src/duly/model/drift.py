"""Drift: what the database says that cannot be, if everything had gone as it should."""

from enum import StrEnum

import msgspec


class Scope(StrEnum):
    """What one round of the audit goes through: what lives now, or what is remembered."""

    LIVE = "live"
    HISTORY = "history"


class Kind(StrEnum):
    """In which way things are not as they should be."""

    ORPHANED = "orphaned"
    OVERRUNNING = "overrunning"
    NOT_CANCELLED = "not_cancelled"
    NOT_RELEASED = "not_released"
    LIVE_AND_ENDED = "live_and_ended"
    LIVE_WITHOUT_TASK = "live_without_task"
    MISMATCHED = "mismatched"
    UNKNOWN_SHAPE = "unknown_shape"
    ATTEMPT_GAP = "attempt_gap"
    TOKEN_AHEAD = "token_ahead"  # noqa: S105 -- a fencing token, no secret
    MINTED_AHEAD = "minted_ahead"
    MISCOUNTED = "miscounted"
    STUCK_LINE = "stuck_line"
    OVERSUBSCRIBED = "oversubscribed"
    ABOVE_OVERRIDE = "above_override"
    REMOVED_NODE_ALIVE = "removed_node_alive"
    TWO_AGENTS = "two_agents"
    NOT_EXPIRED = "not_expired"
    UNKNOWN_LEADER = "unknown_leader"
    LOST_TASK = "lost_task"
    KEY_WITHOUT_TASK = "key_without_task"
    LETTER_WITHOUT_END = "letter_without_end"
    BOOKS_OFF = "books_off"


class Finding(msgspec.Struct, frozen=True):
    """Something that looks wrong at one moment; it may be on its way to being right."""

    kind: Kind
    about: int
    """The task, or the node, server or tenant where the kind is about one of these."""
    evidence: str = ""
    """What must be the same the next time for it to be the same thing."""


class Seen(msgspec.Struct, frozen=True):
    """How many there are of one kind, and a few of them."""

    count: int
    examples: list[int] = []
