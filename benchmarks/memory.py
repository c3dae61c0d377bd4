"""Measures the memory per waiting task and per running attempt."""

import time
from collections.abc import Iterator

from benchmarks import cluster, installation, usage
from benchmarks.load import Requests, send_all
from benchmarks.rig import Rig
from duly.bench.figure import Figure

SLEEP = {
    "command": ["/bin/sleep", "600"],
    "resources": {"cpu": 0.01, "memory_mb": 16, "disk_mb": 1},
}
SETTLING_SECONDS = 3.0
TASK_TABLES_SIZE = (
    "select pg_total_relation_size('duly.live') + sum(pg_total_relation_size(relid)) "
)
TASK_TABLES_SIZE += "from pg_partition_tree('duly.tasks') where isleaf"


def measure(rig: Rig) -> Iterator[Figure]:
    """Compare an idle installation with one that has many waiting, or many running, tasks."""
    yield from _waiting(rig)
    yield from _running(rig)


def _waiting(rig: Rig) -> Iterator[Figure]:
    count = rig.sizes.waiting_some
    sizes = []
    for waiting in (0, count):
        with (
            rig.filled_store(waiting=waiting) as dsn,
            installation.serve(rig.postgres, dsn) as instance,
        ):
            time.sleep(SETTLING_SECONDS)
            on_disk = int(cluster.value(dsn, TASK_TABLES_SIZE))  # a sum of bigints is numeric
            sizes.append((usage.memory([instance.process.pid]).pss, on_disk))
    (empty_memory, empty_disk), (full_memory, full_disk) = sizes
    yield Figure(
        part="memory",
        name=f"memory of the server per waiting task, of {count:,}",
        value=(full_memory - empty_memory) * 2**20 / count,
        unit="bytes",
    )
    yield Figure(
        part="memory",
        name="disk per waiting task, indexes included",
        value=(full_disk - empty_disk) / count,
        unit="bytes",
    )


def _running(rig: Rig) -> Iterator[Figure]:
    count = rig.sizes.attempts_at_once
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as instance:
        time.sleep(SETTLING_SECONDS)
        ours = instance.pids
        # Not PSS: a hundred more processes that share the C library would lower our share of it.
        idle = usage.memory(ours).rss
        requests = Requests(instance.url, instance.key)
        send_all(requests, [requests.batch(count, SLEEP)], 1)
        _await_running(dsn, count)
        time.sleep(SETTLING_SECONDS)
        busy = usage.memory(ours).rss
        with instance.client() as client:
            client.cancel_tasks(status=["waiting", "running"])
    yield Figure(
        part="memory",
        name=f"memory of server and agent per running attempt, of {count}",
        value=(busy - idle) * 1024 / count,
        unit="KiB",
        note="without the task's own process",
    )


def _await_running(dsn: str, count: int) -> None:
    deadline = time.monotonic() + 60
    running = "select count(*) from duly.live where status = 'running'"
    while cluster.value(dsn, running) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"fewer than {count} tasks run after a minute")
        time.sleep(0.1)
