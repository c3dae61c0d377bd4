"""The simulated nodes: what runs where, what is free, and which nodes are alike.

Placement considers every node that it is given, so a round gives it as few as it needs: of nodes
with the same capacity, labels and free resources, only as many as tasks might be placed. The
choice is the same, because nodes that are alike differ only in their ids, and the lowest wins.
"""

from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from duly.model.node import Offer
from duly.model.resources import NO_RESOURCES, Resources
from duly.model.shape import Shape
from duly.policy.budget import headroom
from duly.policy.fairness.shares import PoolKey, pool_key
from duly.sim.task import SimTask
from duly.sim.workloads.workload import NodeGroup

Counts = dict[tuple[int, int], int]
"""Running tasks by tenant and shape."""
FreeKey = tuple[object, ...]
UNLIMITED = 2**31


class Attempt(NamedTuple):
    """A task that runs, since when, and when its cap ends it."""

    task: SimTask
    started: float
    capped_at: float


class Node:
    """A node, and the tasks that run there."""

    __slots__ = (
        "capacity", "free", "free_key", "group", "has_crashed", "id", "is_ready", "labels",
        "offer", "pools", "running", "unapplied",
    )  # fmt: skip

    def __init__(self, id_: int, group: NodeGroup, group_number: int) -> None:
        self.id = id_
        self.group = group_number
        self.capacity = group.capacity
        self.labels = group.labels
        self.free = group.capacity
        self.free_key: FreeKey = ()
        self.offer = _offer(self)
        self.pools: list[Counts] = []
        self.running: dict[int, Attempt] = {}
        """By task."""
        self.unapplied: dict[int, int] = {}
        """Tasks started less those ended since `free` was computed, by shape."""
        self.is_ready = True
        """Whether the servers take it for alive."""
        self.has_crashed = False
        """Whether it has died, noticed or not."""


def _offer(node: Node) -> Offer:
    return Offer(
        node_id=node.id,
        incarnation_id=node.id,
        name="",
        capacity=node.capacity,
        free=node.free,
        labels=node.labels,
    )


class Cluster:
    """All nodes, and sums over them that rounds need."""

    def __init__(self, groups: Sequence[NodeGroup], shapes: Mapping[int, Shape]) -> None:
        self._shapes = shapes
        self.nodes: dict[int, Node] = {}
        self.running: dict[PoolKey, Counts] = {pool_key(shape): {} for shape in shapes.values()}
        """By pool, the tasks that run on its nodes."""
        self.revision = 0
        """Rises when a node joins or leaves."""
        self._alike: dict[FreeKey, list[Node]] = {}
        """Ready nodes, by group and free resources; each list by id."""
        self._changed: set[Node] = set()
        self._headroom_slots = 0
        self._headroom_revision = -1
        self.capacity = NO_RESOURCES
        self.free = NO_RESOURCES
        for number, group in enumerate(groups):
            for _ in range(group.count):
                node = Node(len(self.nodes) + 1, group, number)
                node.pools = [
                    counts
                    for key, counts in self.running.items()
                    if dict(key.labels).items() <= group.labels.items()
                ]
                self.nodes[node.id] = node
                self._include(node)

    def start(self, task: SimTask, node: Node, now: float) -> None:
        """Begin an attempt."""
        node.running[task.id] = Attempt(task, now, now + task.execution_cap.total_seconds())
        self._count(node, task, 1)

    def end(self, task: SimTask, node: Node) -> None:
        """End an attempt, whatever became of it."""
        del node.running[task.id]
        self._count(node, task, -1)

    def lose(self, node: Node) -> list[Attempt]:
        """Take a node out of the fleet; return the attempts that were lost with it."""
        self._apply()
        self._exclude(node)
        node.is_ready = False
        self.revision += 1
        lost = list(node.running.values())
        for attempt in lost:
            self._count(node, attempt.task, -1)
        node.running.clear()
        node.unapplied.clear()
        self._changed.discard(node)
        node.free = node.capacity
        return lost

    def restore(self, node: Node) -> None:
        """Let a node that was lost join again."""
        node.is_ready, node.has_crashed = True, False
        self._include(node)

    def headroom(self, percent: int) -> Mapping[int, Resources]:
        """Return the headroom that nodes keep for urgent tasks, by node."""
        self._apply()
        if self._headroom_revision != self.revision:
            self._headroom_revision = self.revision
            ready = (node.offer for node in self.nodes.values() if node.is_ready)
            self._headroom_slots = headroom.slots_to_keep(ready, percent)
        wanted = self._headroom_slots
        # Of nodes that are alike, those with the lowest ids are chosen, and each keeps a slot.
        first = (node for alike in self._alike.values() for node in alike[:wanted])
        return headroom.keep(
            (
                msgspec.structs.replace(node.offer, used=node.capacity.plus(node.free, -1))
                for node in first
            ),
            wanted,
        )

    def slots_beside(self, kept: Mapping[int, Resources], shape: Shape, limit: int) -> int:
        """Return how many tasks could be placed now that may not use the headroom."""
        lost = 0
        for node_id, resources in kept.items():
            node = self.nodes[node_id]
            if real := _slots(shape, node, UNLIMITED):
                left = node.free.plus(resources, -1)
                lost += real - left.count_fitting(shape.needs, node.capacity, UNLIMITED)
        return max(0, self.slots(shape, limit + lost) - lost)

    def could_fit_beside(self, kept: Mapping[int, Resources], shape: Shape) -> bool:
        """Return True if a node could run a task without its headroom, once it is idle."""
        return any(
            node.is_ready
            and not shape.missing(node.labels)
            and node.capacity.plus(kept.get(node.id, NO_RESOURCES), -1).count_fitting(
                shape.needs, node.capacity, 1
            )
            for node in self.nodes.values()
        )

    def slots(self, shape: Shape, limit: int) -> int:
        """Return how many tasks of a shape could be placed now, up to `limit`."""
        self._apply()
        count, cpu = 0, shape.needs.cpu_milli
        for nodes in self._alike.values():
            if nodes[0].free.cpu_milli >= cpu:
                count += len(nodes) * _slots(shape, nodes[0], limit)
                if count >= limit:
                    return limit
        return count

    def offers(self, wanted: Mapping[int, int], kept: Collection[int]) -> list[Offer]:
        """Return offers that are mostly enough for placing so many tasks of each shape.

        If one of the tasks could not be placed on them, all nodes must be considered. Nodes in
        `kept` keep headroom.
        """
        self._apply()
        shapes = [(self._shapes[shape_id], count) for shape_id, count in wanted.items()]
        least_cpu = min(shape.needs.cpu_milli for shape, _ in shapes)
        offers = []
        for nodes in self._alike.values():
            if nodes[0].free.cpu_milli < least_cpu:
                continue
            # One more than are needed: tasks may have a node to avoid.
            needed = 1 + len(kept)
            if len(nodes) > 1:
                for shape, count in shapes:
                    if each := _slots(shape, nodes[0], count):
                        needed += -(-count // each)
            offers += [node.offer for node in nodes[:needed]]
        return offers

    def all_offers(self, now: float) -> list[Offer]:
        """Return the offers of all ready nodes, with what holds depend on."""
        self._apply()
        return [
            Offer(
                node_id=node.id,
                incarnation_id=node.id,
                name="",
                capacity=node.capacity,
                free=node.free,
                used=node.capacity.plus(node.free, -1),
                next_end=timedelta(seconds=max(0.0, _next_end(node) - now)),
                labels=node.labels,
            )
            for node in self.nodes.values()
            if node.is_ready
        ]

    @property
    def fleet_offer(self) -> Offer:
        """Return all ready nodes as if they were one: for the load, which adds them up."""
        self._apply()
        return Offer(node_id=0, incarnation_id=0, name="", capacity=self.capacity, free=self.free)

    def _count(self, node: Node, task: SimTask, change: int) -> None:
        shape_id = task.shape_id
        unapplied = node.unapplied
        unapplied[shape_id] = unapplied.get(shape_id, 0) + change
        self._changed.add(node)
        key = task.tenant_id, shape_id
        for counts in node.pools:
            if left := counts.get(key, 0) + change:
                counts[key] = left
            else:
                del counts[key]

    def _apply(self) -> None:
        """Compute what is free on the nodes that have changed."""
        if not self._changed:
            return
        for node in sorted(self._changed, key=lambda node: node.id):
            if any(node.unapplied.values()):
                self._exclude(node)
                for shape_id, change in node.unapplied.items():
                    if change:
                        node.free = node.free.plus(self._shapes[shape_id].needs, -change)
                self._include(node, is_new=False)
            node.unapplied.clear()
        self._changed.clear()

    def _include(self, node: Node, *, is_new: bool = True) -> None:
        node.offer = _offer(node)
        node.free_key = node.group, *_amounts(node.free)
        if (alike := self._alike.get(node.free_key)) is None:
            self._alike[node.free_key] = [node]
        else:
            insort(alike, node, key=lambda node: node.id)
        self.free = self.free.plus(node.free)
        self.capacity = self.capacity.plus(node.capacity)
        self.revision += is_new

    def _exclude(self, node: Node) -> None:
        alike = self._alike[node.free_key]
        alike.remove(node)
        if not alike:
            del self._alike[node.free_key]
        self.free = self.free.plus(node.free, -1)
        self.capacity = self.capacity.plus(node.capacity, -1)


def _amounts(free: Resources) -> tuple[object, ...]:
    return (
        free.cpu_milli, free.memory_mb, free.disk_mb, free.iops, free.bandwidth_mbps, free.ports,
        tuple(free.extra.items()),
    )  # fmt: skip


def _slots(shape: Shape, node: Node, limit: int) -> int:
    if shape.requires and shape.missing(node.labels):
        return 0
    return node.free.count_fitting(shape.needs, node.capacity, limit)


def _next_end(node: Node) -> float:
    return min((attempt.capped_at for attempt in node.running.values()), default=0.0)
