"""Decides which findings of the audit are drift, and describes each kind.

A finding may be transient: a task that is just being expired, a node that is just being
removed. It is drift only if every pass over a period found it, with unchanged evidence.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

import msgspec

from duly.model.drift import DriftKind, Finding
from duly.model.resources import Resources
from duly.model.usage import Amounts

MEANINGS: Mapping[DriftKind, str] = {
    DriftKind.ORPHANED: "It runs on an agent that has ended.",
    DriftKind.OVERRUNNING: "It runs long past its execution cap.",
    DriftKind.NOT_CANCELLED: "It was cancelled long ago and still runs.",
    DriftKind.NOT_STOPPED: "It was marked long ago while it ran, and still occupies its node.",
    DriftKind.NOT_RELEASED: "Its time came long ago and it is still scheduled.",
    DriftKind.LIVE_AND_ENDED: "It has ended and is live at the same time.",
    DriftKind.LIVE_WITHOUT_TASK: "It is live, but its task is not stored.",
    DriftKind.MISMATCHED: "Its live row does not match its task.",
    DriftKind.UNKNOWN_SHAPE: "Its shape is not stored.",
    DriftKind.ATTEMPT_GAP: "Its attempt numbers have gaps.",
    DriftKind.TOKEN_AHEAD: "Its fencing token is higher than any that was issued.",
    DriftKind.MINTED_AHEAD: "Its id is above the high-water mark of the server that minted it.",
    DriftKind.MISCOUNTED: "Its count of unfinished upstream tasks is wrong.",
    DriftKind.STUCK_SUBQUEUE: "It waits long past its start_by although a node has room for it.",
    DriftKind.OVERSUBSCRIBED: "More is in use on the node than its capacity.",
    DriftKind.ABOVE_OVERRIDE: (
        "More is in use on the node than its overridden capacity; this clears as its tasks end."
    ),
    DriftKind.REMOVED_NODE_ALIVE: "The node was removed, but its agent counts as alive.",
    DriftKind.TWO_AGENTS: "Two agents of the node count as alive.",
    DriftKind.NOT_EXPIRED: "The lease of the node expired long ago and was not ended.",
    DriftKind.UNKNOWN_LEADER: "The leader is not among the registered servers.",
    DriftKind.LOST_TASK: "It is stored, but neither live nor ended.",
    DriftKind.KEY_WITHOUT_TASK: "An idempotency key refers to it, but it is not stored.",
    DriftKind.LETTER_WITHOUT_END: "It is among the dead letters but has not failed.",
    DriftKind.USAGE_MISMATCH: "A tenant's booked usage differs from the sum over its attempts.",
}
MAX_FINDINGS_PER_KIND = 10_000
"""More findings of one kind are dropped: enough to know that something is very wrong."""

AMOUNT_FIELDS = Amounts.__struct_fields__

FindingKey = tuple[DriftKind, int]


def meaning(kind: str) -> str:
    """Describe a kind of drift; empty for a kind of another version of the server."""
    return next((text for own_kind, text in MEANINGS.items() if own_kind.value == kind), "")


class TrackedFinding(msgspec.Struct, frozen=True):
    """A finding, since when every pass has found it, and when it was last seen."""

    finding: Finding
    since: float
    seen_at: float
    rounds: int = 1

    @property
    def key(self) -> FindingKey:
        """Return the identity of the finding between passes."""
        return self.finding.kind, self.finding.about


class DriftDecision(msgspec.Struct, frozen=True):
    """The findings to track until the next pass, and those confirmed as drift."""

    tracked: dict[FindingKey, TrackedFinding]
    drift: list[Finding]


def confirm_drift(
    before: Mapping[FindingKey, TrackedFinding], seen: Iterable[TrackedFinding], *, after: timedelta
) -> DriftDecision:
    """Compare the findings of a pass with those tracked `before`.

    A finding is drift if the previous pass had it with the same evidence, and it was first seen
    at least `after` ago.
    """
    tracked: dict[FindingKey, TrackedFinding] = {}
    drift = []
    for current in seen:
        previous = before.get(current.key)
        if previous is not None and previous.finding.evidence == current.finding.evidence:
            current = msgspec.structs.replace(
                current, since=previous.since, rounds=previous.rounds + 1
            )
        tracked[current.key] = current
        if current.rounds > 1 and current.seen_at - current.since >= after.total_seconds():
            drift.append(current.finding)
    return DriftDecision(tracked, drift)


def books_disagree(booked: Amounts, counted: Amounts, *, all_there: bool) -> bool:
    """Return True if the booked usage cannot be right, given a recount of the attempts.

    Attempts past their retention cannot be recounted: then the books may exceed the recount.
    """
    if all_there:
        return booked != counted
    return any(getattr(booked, name) < getattr(counted, name) for name in AMOUNT_FIELDS)


def classify_overuse(declared: Resources, allowed: Resources, used: Resources) -> DriftKind | None:
    """Return the kind of drift of a node on which `used` is in use, or None.

    `declared` is the capacity that its agent detected, `allowed` the same with an administrator's
    overrides. If only `allowed` is exceeded, the override was lowered while tasks ran.
    """
    if not allowed.shortage(used):
        return None
    return DriftKind.OVERSUBSCRIBED if declared.shortage(used) else DriftKind.ABOVE_OVERRIDE
