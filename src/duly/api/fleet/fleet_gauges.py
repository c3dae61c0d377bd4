"""Gauges of the whole cluster: nodes, capacity, utilisation, and what waits in each queue."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from prometheus_client import CollectorRegistry, Gauge

from duly.model.node import NodeStatus
from duly.model.queues.queue import QueueDefinitions
from duly.model.resources import NO_RESOURCES, Resources
from duly.policy.queueing import queue_of
from duly.store.fleet.overview import NodeView
from duly.store.fleet.queue_gauges import WaitingTasks


def add_nodes(gauges: CollectorRegistry, nodes: Sequence[NodeView]) -> None:
    """Add the number of nodes, their capacity and how much of it is allocated.

    Nodes that are down, lost or stopped, count as nodes and have no capacity; so do workers, which
    only their tenants use.
    """
    counts = Counter(node.status for node in nodes)
    of_status = Gauge("duly_nodes", "Nodes, by status.", ["status"], registry=gauges)
    for status in NodeStatus:
        of_status.labels(status.value).set(counts[status])
    capacity = free = NO_RESOURCES
    for node in nodes:
        if not node.status.is_down and node.tenant is None:
            capacity, free = capacity.plus(node.capacity), free.plus(node.free)
    _add_capacity(gauges, capacity, capacity.plus(free, -1))


def _add_capacity(gauges: CollectorRegistry, capacity: Resources, allocated: Resources) -> None:
    """Add each kind of resource that any node has."""
    kinds = ["resource"]
    total = Gauge("duly_capacity", "Resources of the nodes.", kinds, registry=gauges)
    taken = Gauge("duly_allocated", "Allocated resources.", kinds, registry=gauges)
    ratio = Gauge("duly_utilisation_ratio", "Allocated share, 0 to 1.", kinds, registry=gauges)
    amounts = dict(allocated.items())
    for kind, amount in capacity.items():
        if amount <= 0:
            continue
        name, unit = ("cpu", 1000) if kind == "cpu_milli" else (kind, 1)
        total.labels(name).set(amount / unit)
        taken.labels(name).set(amounts.get(kind, 0) / unit)
        ratio.labels(name).set(amounts.get(kind, 0) / amount)


def add_queues(
    gauges: CollectorRegistry,
    waiting: Sequence[WaitingTasks],
    definitions: QueueDefinitions,
    urgent_slack: timedelta,
) -> None:
    """Add the number of waiting tasks in each queue, and how long the oldest has waited."""
    tasks: Counter[str] = Counter()
    oldest: dict[str, float] = {}
    for part in waiting:
        slack = timedelta(0) if part.is_urgent else timedelta.max
        queue = queue_of(definitions.get(part.queue).name, slack, urgent_slack)
        tasks[queue] += part.tasks
        oldest[queue] = max(oldest.get(queue, 0.0), part.oldest_wait)
    count = Gauge("duly_tasks_waiting", "Waiting tasks, by queue.", ["queue"], registry=gauges)
    wait = Gauge(
        "duly_oldest_wait_seconds", "The longest wait so far, by queue.", ["queue"], registry=gauges
    )
    for queue in definitions.by_name:
        count.labels(queue).set(tasks[queue])
        wait.labels(queue).set(oldest.get(queue, 0.0))
