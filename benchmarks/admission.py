"""Measures rate limiting: the cost of refusals, their effect on other tenants, and the overhead.

Refusals are asked for by a tenant whose bucket is empty, over eight connections that each
ask again as soon as they are answered, while another tenant submits one task at a time; in
turns with that tenant alone. Whoever asks is one more process on the same two cores, which
the neighbour has to share with it, too: nothing of that is taken off.

The cost of authentication, scopes and rate limits is measured with single submits of a tenant
with a high rate, against a server that authenticates nobody and has no limits
(`benchmarks.unauthenticated_server`). Both alternate in many short turns, because the machine's
speed varies from one second to the next.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

from benchmarks import checks, cluster, installation
from benchmarks.installation import Installation
from benchmarks.load import TRUE, Requests, latencies, send_all
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_least, at_most, median, percentile

CLIENTS = 16
HAMMERS = 8
NARROW = ("narrow", 60, 1)
WIDE = ("wide", 1_000_000_000, 1_000_000)


def measure(rig: Rig) -> Iterator[Figure]:
    """Measure refusals beside a neighbour, then submits with and without limits."""
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as place:
        yield from _refusals(rig, place)
    yield from _cost(rig)


def _refusals(rig: Rig, place: Installation) -> Iterator[Figure]:
    neighbour = Requests(place.url, place.key)
    hammered = Requests(place.url, _key(place, *NARROW))
    request = neighbour.post("/v1/tasks", TRUE)
    send_all(neighbour, [request] * 50, 1)
    count, rounds = rig.sizes.singles // 8, rig.sizes.rounds
    alone, beside = list[float](), list[float]()
    refused, admitted, seconds = 0, 0, 0.0
    for _ in range(rounds):
        alone += latencies(neighbour, request, count)
        with _hammering(hammered) as counts:
            before, began = counts.refused.value, time.perf_counter()
            beside += latencies(neighbour, request, count)
            refused += counts.refused.value - before
            seconds += time.perf_counter() - began
        admitted += counts.admitted.value
    checks.none_lost(place.dsn, 50 + 2 * rounds * count + admitted)
    yield Figure(
        part="limits",
        name=f"refusals, {HAMMERS} clients of a tenant whose bucket is empty",
        value=refused / seconds,
        unit="/s",
        target=at_least(3000),
        note=f"beside a neighbour who submits {rounds * count / seconds:,.0f} tasks/s",
    )
    for share in (0.5, 0.99):
        yield Figure(
            part="limits",
            name=f"submits of a neighbour meanwhile, p{share * 100:.0f}",
            value=percentile(beside, share) * 1000,
            unit="ms",
            limit=percentile(alone, share) * 1000,
            against="the same without the refusals",
            target=at_most(2.0),
        )


def _cost(rig: Rig) -> Iterator[Figure]:
    """Submit to two servers in turns, so that what disturbs one disturbs the other."""
    with (
        rig.store() as guarded_dsn,
        rig.store() as open_dsn,
        installation.serve(rig.postgres, guarded_dsn) as guarded,
        installation.serve(
            rig.postgres, open_dsn, module="benchmarks.unauthenticated_server"
        ) as unauthenticated,
    ):
        places = {
            "with": Requests(guarded.url, _key(guarded, *WIDE)),
            "without": Requests(unauthenticated.url, unauthenticated.key),
        }
        rates: dict[str, list[float]] = {name: [] for name in places}
        request = {name: one.post("/v1/tasks", TRUE) for name, one in places.items()}
        for name, requests in places.items():
            send_all(requests, [request[name]] * 200, CLIENTS)
        count = rig.sizes.singles // 4
        for _ in range(4 * rig.sizes.rounds):
            for name, requests in places.items():
                seconds, _ = send_all(requests, [request[name]] * count, CLIENTS)
                rates[name].append(count / seconds)
    yield Figure(
        part="limits",
        name=f"single submits with authentication, scopes and a rate, {CLIENTS} clients",
        value=median(rates["with"]),
        unit="/s",
        limit=median(rates["without"]),
        against="the same server without any of them",
        target=at_least(0.95),
    )


class _Counts:
    """How many requests were refused, and admitted, so far."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("fork")
        self.refused = self._context.Value("q", 0)
        self.admitted = self._context.Value("q", 0)
        self.over = self._context.Event()

    def start(self, requests: Requests) -> BaseProcess:
        """Let another process send requests that are over the limit, until it is over."""
        process = self._context.Process(target=self._hammer, args=(requests,))
        process.start()
        return process

    def _hammer(self, requests: Requests) -> None:
        request = requests.post("/v1/tasks", TRUE)
        while not self.over.is_set():
            _, answers = send_all(requests, [request] * 400, HAMMERS, expected=(b"201", b"429"))
            refused = sum(b'"limit_exceeded"' in answer for answer in answers)
            self.refused.value += refused
            self.admitted.value += len(answers) - refused


@contextmanager
def _hammering(requests: Requests) -> Iterator[_Counts]:
    """Send requests that are over the limit for as long as the block lasts."""
    counts = _Counts()
    process = counts.start(requests)
    try:
        while not counts.refused.value and process.is_alive():
            time.sleep(0.01)
        yield counts
    finally:
        counts.over.set()
        process.join()
    if process.exitcode:
        raise RuntimeError("whoever was to be refused was answered otherwise")


def _key(place: Installation, plan: str, tasks_per_hour: int, burst: int) -> str:
    """Make a tenant with a plan of its own, and return a key to submit with."""
    cluster.run(
        place.dsn,
        f"""insert into duly.plans (name, delay_tolerance, execution_cap, max_execution_cap,
                                    weight, tasks_per_hour, burst)
            values ('{plan}', '300 s', '1 h', '24 h', 1, {tasks_per_hour}, {burst})""",
        f"insert into duly.tenants (name, plan) values ('{plan}', '{plan}')",
    )
    return installation.make_key(place.dsn, plan)
