"""The lane and the frequency of each fault."""

from collections.abc import Iterable

from tests.torture.fault_order import WeightedFault
from tests.torture.faults import possible

ON_NODES = frozenset(
    {
        "agent cut off",
        "agent cut off one way",
        "agent's link flaps",
        "agent's clock jumps",
        "node's disk full",
    }
)
ALONE = frozenset({"agent killed", "node killed"})
OFTEN = {"leader killed": 3, "PostgreSQL killed": 2, "server killed": 2}
"""What happens most often out there, and what is promised most about."""


def cards(names: Iterable[str] | None = None) -> tuple[WeightedFault, ...]:
    """Return cards for every fault that this machine can have, or one for each of those named."""
    chosen = None if names is None else set(names)
    return tuple(
        WeightedFault(
            fault.name,
            "nodes" if fault.kind == "node" or fault.name in ON_NODES else "control",
            is_alone=fault.name in ALONE,
            count=OFTEN.get(fault.name, 1) if chosen is None else 1,
        )
        for fault in possible()
        if chosen is None or fault.name in chosen
    )
