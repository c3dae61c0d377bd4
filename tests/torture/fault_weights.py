"""The lane and the frequency of each fault."""

from collections.abc import Iterable

from tests.torture.fault_order import WeightedFault
from tests.torture.faults import available_faults

NODE_LANE = frozenset(
    {
        "agent cut off",
        "agent cut off one way",
        "agent's link flaps",
        "agent's clock jumps",
        "node's disk full",
    }
)
EXCLUSIVE = frozenset({"agent killed", "node killed"})
WEIGHTS = {"leader killed": 3, "PostgreSQL killed": 2, "server killed": 2}
"""Faults that are frequent in practice, and that promises are about."""


def weighted_faults(names: Iterable[str] | None = None) -> tuple[WeightedFault, ...]:
    """Return every available fault with its weight, or the named ones with weight 1."""
    chosen = None if names is None else set(names)
    return tuple(
        WeightedFault(
            fault.name,
            "nodes" if fault.kind == "node" or fault.name in NODE_LANE else "control",
            is_exclusive=fault.name in EXCLUSIVE,
            count=WEIGHTS.get(fault.name, 1) if chosen is None else 1,
        )
        for fault in available_faults()
        if chosen is None or fault.name in chosen
    )
