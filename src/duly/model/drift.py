"""Drift: states of the database that violate an invariant, as found by the audit."""

from enum import StrEnum

import msgspec


class AuditScope(StrEnum):
    """What a pass of the audit covers: live rows, or history."""

    LIVE = "live"
    HISTORY = "history"


class DriftKind(StrEnum):
    """The invariant that is violated."""

    ORPHANED = "orphaned"
    OVERRUNNING = "overrunning"
    NOT_CANCELLED = "not_cancelled"
    NOT_STOPPED = "not_stopped"
    NOT_RELEASED = "not_released"
    LIVE_AND_ENDED = "live_and_ended"
    LIVE_WITHOUT_TASK = "live_without_task"
    MISMATCHED = "mismatched"
    UNKNOWN_SHAPE = "unknown_shape"
    ATTEMPT_GAP = "attempt_gap"
    TOKEN_AHEAD = "token_ahead"  # noqa: S105 -- a fencing token, no secret
    MINTED_AHEAD = "minted_ahead"
    MISCOUNTED = "miscounted"
    STUCK_SUBQUEUE = "stuck_subqueue"
    OVERSUBSCRIBED = "oversubscribed"
    ABOVE_OVERRIDE = "above_override"
    REMOVED_NODE_ALIVE = "removed_node_alive"
    TWO_AGENTS = "two_agents"
    NOT_EXPIRED = "not_expired"
    UNKNOWN_LEADER = "unknown_leader"
    LOST_TASK = "lost_task"
    KEY_WITHOUT_TASK = "key_without_task"
    LETTER_WITHOUT_END = "letter_without_end"
    USAGE_MISMATCH = "usage_mismatch"


class Finding(msgspec.Struct, frozen=True):
    """A violation seen at one moment; it may be transient."""

    kind: DriftKind
    about: int
    """The id of the task, node, server or tenant, depending on the kind."""
    evidence: str = ""
    """Must be unchanged in the next pass for it to be the same violation."""


class DriftCount(msgspec.Struct, frozen=True):
    """The number of violations of one kind, and the ids of a few."""

    count: int
    examples: list[int] = []
