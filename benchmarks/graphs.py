"""Measures graphs: a wide fan against independent tasks, a chain per step, a large one per submit.

A chain is the worst case: nothing in it can run in parallel, so a step is the whole latency between
the end of a task and the start of its downstream task.
"""

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from benchmarks import checks, cluster, installation, usage
from benchmarks.installation import Installation
from benchmarks.load import CONCURRENCY, TRUE_TASK, Client, Requests, send_all
from benchmarks.rig import Rig
from benchmarks.runs import throughput
from benchmarks.waiting import await_empty
from duly.bench.figure import Figure, at_least, at_most, median, percentile

PART = "graphs"
WARM_UP_TASKS = 100
SMALL_SUBMIT_INTERVAL_SECONDS = 0.01
"""Seconds between two submits of the other client, while a large graph is being stored."""
STARTS = "select extract(epoch from started_at) from duly.attempts order by task_id"


def measure(rig: Rig) -> Iterator[Figure]:
    """Run a fan and a chain, and store a large graph while another client submits."""
    yield from _wide(rig)
    yield from _chain(rig)
    yield from _large(rig)


def fan_tasks(width: int) -> list[dict[str, Any]]:
    """Return one task, `width` tasks downstream of it, and one downstream of all of those."""
    wide = [TRUE_TASK | {"ref": f"w{number}", "depends_on": ["first"]} for number in range(width)]
    refs = [task["ref"] for task in wide]
    return [TRUE_TASK | {"ref": "first"}, *wide, TRUE_TASK | {"ref": "last", "depends_on": refs}]


def chain_tasks(length: int) -> list[dict[str, Any]]:
    """Return tasks each of which depends on the previous one."""
    return [
        TRUE_TASK | {"ref": f"s{number}", "depends_on": [f"s{number - 1}"] if number else []}
        for number in range(length)
    ]


def mesh_tasks(size: int) -> list[dict[str, Any]]:
    """Return tasks that depend on about three earlier ones each, near and far."""
    return [
        TRUE_TASK
        | {
            "ref": f"m{number}",
            "depends_on": [
                f"m{other}" for other in sorted({number - 1, number // 2, number // 3} - {number})
            ]
            if number
            else [],
        }
        for number in range(size)
    ]


def _wide(rig: Rig) -> Iterator[Figure]:
    width = rig.sizes.graph_width
    independent, in_graph = list[float](), list[float]()
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as instance:
        throughput(instance, WARM_UP_TASKS)
        _run_fan(instance, WARM_UP_TASKS)
        for _ in range(rig.sizes.graph_rounds):
            # In one request, like the graph.
            independent.append(throughput(instance, width, batch=width))
            in_graph.append(_run_fan(instance, width))
        total = 2 * WARM_UP_TASKS + 2 + rig.sizes.graph_rounds * (2 * width + 2)
        checks.all_done(dsn, total)
    yield Figure(
        part=PART,
        name=f"1 → {width:,} → 1 of /bin/true, from submit to done, {CONCURRENCY} at a time",
        value=median(in_graph),
        unit="/s",
        limit=median(independent),
        against="as many independent tasks",
        target=at_least(0.8),
    )


def _run_fan(instance: Installation, width: int) -> float:
    requests = Requests(instance.url, instance.key)
    request = requests.post("/v1/graphs", {"tasks": fan_tasks(width)})
    began = time.perf_counter()
    send_all(requests, [request], 1)
    await_empty(instance.dsn)
    return (width + 2) / (time.perf_counter() - began)


def _chain(rig: Rig) -> Iterator[Figure]:
    length = rig.sizes.graph_depth
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as instance:
        requests = Requests(instance.url, instance.key)
        send_all(requests, [requests.post("/v1/graphs", {"tasks": chain_tasks(length)})], 1)
        await_empty(dsn)
        checks.all_done(dsn, length)
        starts = [float(row[0]) for row in cluster.rows(dsn, STARTS)]
    steps = [(after - before) * 1000 for before, after in pairwise(starts)]
    if min(steps) <= 0:
        raise checks.CheckFailed("a task started before its upstream task")
    for share, bound in ((0.5, 15.0), (0.99, None)):
        yield Figure(
            part=PART,
            name=f"a step of a chain of {length:,} /bin/true, p{share * 100:.0f}",
            value=percentile(steps, share),
            unit="ms",
            target=None if bound is None else at_most(bound),
            note="from start to start",
        )


def _large(rig: Rig) -> Iterator[Figure]:
    tasks = mesh_tasks(rig.sizes.graph_size)
    edges = sum(len(task["depends_on"]) for task in tasks)
    name = f"a graph of {len(tasks):,} tasks and {edges:,} edges"
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as instance:
        requests = Requests(instance.url, instance.key)
        send_all(requests, [requests.batch(WARM_UP_TASKS, TRUE_TASK)], 1)
        request = requests.post("/v1/graphs", {"tasks": tasks})
        seconds, latencies = _submit_beside(requests, request)
        peak = usage.peak_memory(instance.process.pid)
        stored = cluster.value(dsn, "select count(*) from duly.edges")
        if stored != edges or checks.count(dsn) != len(tasks) + WARM_UP_TASKS + len(latencies) + 1:
            raise checks.CheckFailed(
                f"{stored:,} edges are stored of {edges:,}, or tasks are missing"
            )
    yield Figure(part=PART, name=f"submit of {name}", value=seconds, unit="s", target=at_most(15.0))
    yield Figure(
        part=PART,
        name="memory of the server at that, at most",
        value=peak,
        unit="MiB",
        target=at_most(500.0),
    )
    for share, bound in ((0.5, None), (0.99, 100.0)):
        yield Figure(
            part=PART,
            name=f"a submit of somebody else meanwhile, p{share * 100:.0f}",
            value=percentile(latencies, share) * 1000,
            unit="ms",
            target=None if bound is None else at_most(bound),
            note=f"of {len(latencies)}; the longest took {max(latencies) * 1000:.0f} ms",
        )


def _submit_beside(requests: Requests, request: bytes) -> tuple[float, list[float]]:
    """Return the seconds of a large submit, and the latencies of small ones sent meanwhile."""
    large_seconds = list[float]()
    large = threading.Thread(
        target=lambda: large_seconds.append(send_all(requests, [request], 1)[0])
    )
    small = requests.post("/v1/tasks", TRUE_TASK)
    client, latencies = Client(requests.address, (b"201",)), list[float]()
    client.request(small)
    large.start()
    try:
        while large.is_alive():
            began = time.perf_counter()
            client.request(small)
            latencies.append(time.perf_counter() - began)
            time.sleep(SMALL_SUBMIT_INTERVAL_SECONDS)
    finally:
        client.socket.close()
        large.join()
    if not large_seconds:
        raise checks.CheckFailed("the submit of the large graph failed")
    return large_seconds[0], latencies
