"""What the command line changes about a workload: the number of nodes, their size, the load."""

from collections.abc import Sequence

import msgspec

from duly.errors import ConfigError
from duly.sim.workloads.workload import NodeGroup, with_node_count


class FleetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a workload; None leaves it as it is."""

    nodes: int | None = None
    more_nodes: int = 0
    """Added to the nodes of the workload; negative: taken away."""
    cpus_per_node: int | None = None
    scale_load: float = 1.0
    tenants_by_group: bool = False
    """In a trace, whether the group of users is the tenant, and not the user."""

    def apply(self, groups: Sequence[NodeGroup]) -> tuple[NodeGroup, ...]:
        """Return the nodes with these changes."""
        changed = tuple(groups)
        total = sum(group.count for group in groups)
        if (count := self.node_count(total)) != total:
            changed = with_node_count(changed, count)
        if self.cpus_per_node is not None:
            changed = tuple(_with_cpus(group, self.cpus_per_node) for group in changed)
        return changed

    def node_count(self, total: int) -> int:
        """Return the number of nodes instead of `total`."""
        count = (total if self.nodes is None else self.nodes) + self.more_nodes
        if count < 1:
            raise ConfigError(
                f"The fleet has {total} nodes, and {-self.more_nodes} fewer leave none."
            )
        return count

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the report must know."""
        if self.scale_load == 1.0:
            return ()
        return (f"The load is {self.scale_load:g} times that of the workload.",)


def _with_cpus(group: NodeGroup, cpus: int) -> NodeGroup:
    """Return nodes with more or fewer cores, and memory and disk in proportion."""
    factor = 1000 * cpus / group.capacity.cpu_milli
    capacity = msgspec.structs.replace(
        group.capacity,
        cpu_milli=1000 * cpus,
        memory_mb=round(factor * group.capacity.memory_mb),
        disk_mb=round(factor * group.capacity.disk_mb),
    )
    return msgspec.structs.replace(group, capacity=capacity)
