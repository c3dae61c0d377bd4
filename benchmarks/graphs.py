"""Measures graphs: wide ones against independent tasks, chains per step, large ones in one request.

A chain is the worst case of a graph: nothing of it can be done beside anything else, so a step
is all that lies between the end of a task and the start of the one that waits for it.
"""

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from benchmarks import checks, cluster, installation, usage
from benchmarks.installation import Installation
from benchmarks.load import AT_A_TIME, TRUE, Client, Requests, send_all
from benchmarks.rig import Rig
from benchmarks.runs import run_all
from benchmarks.waiting import await_empty
from duly.bench.figure import Figure, at_least, at_most, median, percentile

PART = "graphs"
WARM = 100
PACE = 0.01
"""Seconds between two submits of somebody else, while a large graph is being stored."""
STARTS = "select extract(epoch from started_at) from duly.attempts order by task_id"


def measure(rig: Rig) -> Iterator[Figure]:
    """Run a wide graph and a chain, and store a large one while somebody else submits."""
    yield from _wide(rig)
    yield from _chain(rig)
    yield from _large(rig)


def fan(width: int) -> list[dict[str, Any]]:
    """Return one task, `width` that wait for it, and one that waits for all of them."""
    wide = [TRUE | {"ref": f"w{one}", "depends_on": ["first"]} for one in range(width)]
    refs = [task["ref"] for task in wide]
    return [TRUE | {"ref": "first"}, *wide, TRUE | {"ref": "last", "depends_on": refs}]


def chain(length: int) -> list[dict[str, Any]]:
    """Return tasks of which each waits for the one before."""
    return [
        TRUE | {"ref": f"s{one}", "depends_on": [f"s{one - 1}"] if one else []}
        for one in range(length)
    ]


def mesh(size: int) -> list[dict[str, Any]]:
    """Return tasks that wait for about three others each: near ones and far ones."""
    return [
        TRUE
        | {
            "ref": f"m{one}",
            "depends_on": [f"m{other}" for other in sorted({one - 1, one // 2, one // 3} - {one})]
            if one
            else [],
        }
        for one in range(size)
    ]


def _wide(rig: Rig) -> Iterator[Figure]:
    width = rig.sizes.graph_width
    apart, together = list[float](), list[float]()
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as place:
        run_all(place, WARM)
        _run_fan(place, WARM)
        for _ in range(rig.sizes.graph_rounds):
            # In one request, as a graph is.
            apart.append(run_all(place, width, batch=width))
            together.append(_run_fan(place, width))
        total = 2 * WARM + 2 + rig.sizes.graph_rounds * (2 * width + 2)
        checks.all_done(dsn, total)
    yield Figure(
        part=PART,
        name=f"1 → {width:,} → 1 of /bin/true, from submit to done, {AT_A_TIME} at a time",
        value=median(together),
        unit="/s",
        limit=median(apart),
        against="as many independent tasks",
        target=at_least(0.8),
    )


def _run_fan(place: Installation, width: int) -> float:
    requests = Requests(place.url, place.key)
    request = requests.post("/v1/graphs", {"tasks": fan(width)})
    began = time.perf_counter()
    send_all(requests, [request], 1)
    await_empty(place.dsn)
    return (width + 2) / (time.perf_counter() - began)


def _chain(rig: Rig) -> Iterator[Figure]:
    length = rig.sizes.graph_depth
    with rig.store() as dsn, installation.up(rig.postgres, dsn) as place:
        requests = Requests(place.url, place.key)
        send_all(requests, [requests.post("/v1/graphs", {"tasks": chain(length)})], 1)
        await_empty(dsn)
        checks.all_done(dsn, length)
        starts = [float(row[0]) for row in cluster.rows(dsn, STARTS)]
    steps = [(after - before) * 1000 for before, after in pairwise(starts)]
    if min(steps) <= 0:
        raise checks.Wrong("a task started before the one that it waits for")
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
    tasks = mesh(rig.sizes.graph_size)
    edges = sum(len(task["depends_on"]) for task in tasks)
    name = f"a graph of {len(tasks):,} tasks and {edges:,} edges"
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as place:
        requests = Requests(place.url, place.key)
        send_all(requests, [requests.batch(WARM, TRUE)], 1)
        request = requests.post("/v1/graphs", {"tasks": tasks})
        seconds, beside = _beside(requests, request)
        peak = usage.peak(place.process.pid)
        stored = cluster.value(dsn, "select count(*) from duly.edges")
        if stored != edges or checks.count(dsn) != len(tasks) + WARM + len(beside) + 1:
            raise checks.Wrong(f"{stored:,} edges are stored of {edges:,}, or tasks are missing")
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
            value=percentile(beside, share) * 1000,
            unit="ms",
            target=None if bound is None else at_most(bound),
            note=f"of {len(beside)}; the longest took {max(beside) * 1000:.0f} ms",
        )


def _beside(requests: Requests, request: bytes) -> tuple[float, list[float]]:
    """Return how long a large request took, and how long small ones that were sent meanwhile."""
    took = list[float]()
    large = threading.Thread(target=lambda: took.append(send_all(requests, [request], 1)[0]))
    small = requests.post("/v1/tasks", TRUE)
    client, beside = Client(requests.address, (b"201",)), list[float]()
    client.ask(small)
    large.start()
    try:
        while large.is_alive():
            began = time.perf_counter()
            client.ask(small)
            beside.append(time.perf_counter() - began)
            time.sleep(PACE)
    finally:
        client.socket.close()
        large.join()
    if not took:
        raise checks.Wrong("the large graph was not answered for")
    return took[0], beside
