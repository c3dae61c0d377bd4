"""Decides how much a node is penalised in placement for recent failures.

A node that fails tasks, loses them or keeps rejoining still takes work, but placement prefers
others. The steps of the penalty double, so nodes with about the same record tie and the fit of
the task decides between them.
"""

import msgspec

IGNORED_POINTS = 4
"""Points without penalty: every node has a bad task or a restart now and then."""
MAX_PENALTY = 8


class NodeRecord(msgspec.Struct, frozen=True):
    """What happened on a node within the last minutes."""

    failures: int = 0
    """Distinct tasks that failed there: a task that keeps failing counts once."""
    losses: int = 0
    joins: int = 0


def penalty(record: NodeRecord) -> int:
    """Return the penalty of a node: 0 for a healthy one, at most MAX_PENALTY.

    A loss weighs more than a failure, which may be the task's own fault. The first join is free:
    every node joins once.
    """
    points = record.failures + 3 * record.losses + 2 * max(0, record.joins - 1)
    return min(MAX_PENALTY, (points // (IGNORED_POINTS + 1)).bit_length())
