"""Decides what of the audit's findings is drift, and says what each kind of it means.

A finding may be a moment's: a task that is just being swept, a node that is just being
removed. It is drift only if it was there in every round of a stretch of time, with the
same evidence, so that nothing has happened to it meanwhile.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta

import msgspec

from duly.model.drift import Finding, Kind
from duly.model.resources import Resources
from duly.model.usage import Amounts

MEANINGS: Mapping[Kind, str] = {
    Kind.ORPHANED: "It runs on an agent that has ended.",
    Kind.OVERRUNNING: "It runs long past its execution cap.",
    Kind.NOT_CANCELLED: "It was cancelled long ago and still runs.",
    Kind.NOT_RELEASED: "Its time came long ago and it is still scheduled.",
    Kind.LIVE_AND_ENDED: "It has ended and is live at the same time.",
    Kind.LIVE_WITHOUT_TASK: "It is live, but what is to be run is not stored.",
    Kind.MISMATCHED: "Its live row asks for something else than its task.",
    Kind.UNKNOWN_SHAPE: "What it needs is not stored.",
    Kind.ATTEMPT_GAP: "Its attempts are not numbered without gaps.",
    Kind.TOKEN_AHEAD: "Its fencing token is above all that were given out.",
    Kind.MINTED_AHEAD: "Its id is above the mark of the server that minted it.",
    Kind.MISCOUNTED: "It is blocked by more or fewer tasks than it still waits for.",
    Kind.STUCK_LINE: "It waits long past its start_by, though a node has room for it.",
    Kind.OVERSUBSCRIBED: "More is in use on the node than it has.",
    Kind.ABOVE_OVERRIDE: (
        "More is in use on the node than it was told that it has; that ends with its tasks."
    ),
    Kind.REMOVED_NODE_ALIVE: "The node was removed, and its agent counts as alive.",
    Kind.TWO_AGENTS: "Two agents of the node count as alive.",
    Kind.NOT_EXPIRED: "The lease of the node ran out long ago and was not ended.",
    Kind.UNKNOWN_LEADER: "The server that leads is not among the servers.",
    Kind.LOST_TASK: "It is stored, but neither live nor ended.",
    Kind.KEY_WITHOUT_TASK: "An idempotency key stands for it, but it is not stored.",
    Kind.LETTER_WITHOUT_END: "It is among the dead letters and has not failed.",
    Kind.BOOKS_OFF: "The books of a tenant do not say what its attempts of the day add up to.",
}
MOST = 10_000
"""Of one kind no more are kept: enough to know that something is very wrong."""

AMOUNTS = Amounts.__struct_fields__

Key = tuple[Kind, int]


def meaning(kind: str) -> str:
    """Say what a kind of drift means; another version of the server may know other kinds."""
    return next((said for known, said in MEANINGS.items() if known.value == kind), "")


class Suspicion(msgspec.Struct, frozen=True):
    """A finding, since when it has been there in every round, and when it was seen last."""

    finding: Finding
    since: float
    seen_at: float
    rounds: int = 1

    @property
    def key(self) -> Key:
        """Return what tells it apart from others."""
        return self.finding.kind, self.finding.about


class Judgement(msgspec.Struct, frozen=True):
    """What is suspected after a round, and what of that is drift."""

    suspicions: dict[Key, Suspicion]
    drift: list[Finding]


def judge(
    before: Mapping[Key, Suspicion], seen: Iterable[Suspicion], *, after: timedelta
) -> Judgement:
    """Hold what a round has `seen` against what was suspected `before`.

    Drift is what was there the last time too, the same, and first seen at least `after` ago.
    """
    suspicions: dict[Key, Suspicion] = {}
    drift = []
    for one in seen:
        known = before.get(one.key)
        if known is not None and known.finding.evidence == one.finding.evidence:
            one = msgspec.structs.replace(one, since=known.since, rounds=known.rounds + 1)
        suspicions[one.key] = one
        if one.rounds > 1 and one.seen_at - one.since >= after.total_seconds():
            drift.append(one.finding)
    return Judgement(suspicions, drift)


def is_off(booked: Amounts, counted: Amounts, *, all_there: bool) -> bool:
    """Say whether the books are wrong about attempts that were counted again.

    Attempts that were dropped since cannot be counted: then the books may say more, not less.
    """
    if all_there:
        return booked != counted
    return any(getattr(booked, name) < getattr(counted, name) for name in AMOUNTS)


def overuse(declared: Resources, allowed: Resources, used: Resources) -> Kind | None:
    """Say what is wrong with a node on which `used` is in use, if anything.

    `declared` is what its agent has found there, `allowed` is that with what an administrator
    said instead: if only the latter is too little, it was lowered while tasks ran.
    """
    if not allowed.shortage(used):
        return None
    return Kind.OVERSUBSCRIBED if declared.shortage(used) else Kind.ABOVE_OVERRIDE
