"""Reads what an installation has run, for `duly simulate --history`."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import msgspec

from duly.cli.connect import connect, print_notice
from duly.client.shapes.task_shapes import Page, Task
from duly.client.sync import Client
from duly.model.queues.queue import Queue
from duly.model.requests.amounts import ResourcesRequest, apply_amounts
from duly.model.resources import NO_RESOURCES, Resources
from duly.model.shape import Shape

if TYPE_CHECKING:
    from duly.sim.workloads.fleet_options import FleetOptions
    from duly.sim.workloads.history import PastTask
    from duly.sim.workloads.workload import NodeGroup, Workload

MAX_TASKS = 200_000
"""The newest tasks that are read: each takes about 10 µs of the server and 1 KiB here."""
READY = "ready"
PAGE_SIZE = 1000
T = TypeVar("T")


class History(msgspec.Struct):
    """The tasks and nodes of an installation."""

    since: str
    tasks: "list[PastTask]"
    groups: "list[NodeGroup]"
    weights: dict[str, int]

    def workload(self, options: "FleetOptions") -> "Workload":
        """Return the workload that the tasks make up on these nodes, changed by `options`."""
        from duly.sim.workloads.history import make_workload

        return make_workload(f"last {self.since}", self.tasks, self.groups, self.weights, options)


def read_history(since: str) -> History:
    """Read the tasks that have run since some time ago, the nodes, and the tenants' weights."""
    with connect() as client:
        ended = client.iter_tasks(since=since, status=["done", "failed"])
        tasks = [past for task in islice(ended, MAX_TASKS) if (past := _past_task(task))]
        if next(ended, None) is not None:
            print_notice(f"Only the newest {MAX_TASKS:,} tasks are simulated.")
        return History(since, tasks, list(_node_groups(client)), _weights(client))


def _past_task(task: Task) -> "PastTask | None":
    """Return a task that has run; None if it never started."""
    from duly.sim.workloads.history import PastTask

    if task["started_at"] is None or task["finished_at"] is None:
        return None
    queue = task["queue"]
    return PastTask(
        tenant=task["tenant"],
        arrived=_arrival(task),
        run_time=max(0.0, _seconds(task["finished_at"]) - _seconds(task["started_at"])),
        shape=Shape(
            _resources(task["resources"]),
            task["requires"],
            queue=Queue(queue) if queue in (Queue.URGENT, Queue.OFF_PEAK) else None,
        ),
        delay_tolerance=timedelta(seconds=task["delay_tolerance"]),
        execution_cap=timedelta(seconds=task["execution_cap"]),
        priority=task["priority"],
    )


def _arrival(task: Task) -> float:
    """Return when a task could start first: after a retry, `ready_at` is that of the last one."""
    if task["attempt"] <= 1:
        return _seconds(task["ready_at"])
    return _seconds(task["run_at"] or task["submitted_at"])


def _node_groups(client: Client) -> "Iterator[NodeGroup]":
    from duly.sim.workloads.workload import NodeGroup

    kinds = Counter(
        msgspec.json.encode((node["capacity"], node["labels"]), order="deterministic")
        for node in _all_pages(client.list_nodes)
        if node["status"] == READY
    )
    for kind, count in kinds.items():
        capacity, labels = msgspec.json.decode(kind)
        yield NodeGroup(count=count, capacity=_resources(capacity), labels=labels)


def _weights(client: Client) -> dict[str, int]:
    return {tenant["name"]: tenant["weight"] for tenant in _all_pages(client.list_tenants)}


def _all_pages(list_page: Callable[..., Page[T]]) -> Iterator[T]:
    cursor: str | None = None
    while True:
        page = list_page(limit=PAGE_SIZE, cursor=cursor)
        yield from page["items"]
        if (cursor := page["next_cursor"]) is None:
            return


def _resources(amounts: object) -> Resources:
    return apply_amounts(msgspec.convert(amounts, ResourcesRequest), NO_RESOURCES)


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
