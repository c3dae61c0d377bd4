"""Decides how far a node is trusted, by what became of its work lately.

A node that fails tasks, loses them or keeps joining anew is still a node: it is only
asked later than others. The penalty grows by steps that double, so that nodes with
about the same record are equals and are told apart by how well a task fits.
"""

import msgspec

HARMLESS = 4
"""Points that count for nothing: every node has a bad task or a restart now and then."""
HIGHEST = 8


class Record(msgspec.Struct, frozen=True):
    """What became of a node's work within the last minutes."""

    failures: int = 0
    """How many different tasks have failed there: one that fails again and again counts once."""
    losses: int = 0
    joins: int = 0


def penalty(record: Record) -> int:
    """Return how much later than others the node is asked: 0 for a healthy one, at most HIGHEST.

    A loss weighs more than a failure, which may be the task's own fault. One join is how every
    node begins.
    """
    points = record.failures + 3 * record.losses + 2 * max(0, record.joins - 1)
    return min(HIGHEST, (points // (HARMLESS + 1)).bit_length())
