"""Measures rate limiting: the cost of refusals, their effect on other tenants, and the overhead.

A tenant whose bucket is empty submits over eight connections, each retrying as soon as it is
refused, while a neighbour submits one task at a time; this alternates with the neighbour alone. The
load generator of the refused tenant runs on the same two cores, and its cost is not subtracted.

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
from benchmarks.load import TRUE_TASK, Requests, latencies, send_all
from benchmarks.rig import Rig
from duly.bench.figure import Figure, at_least, at_most, median, percentile

CLIENTS = 16
REFUSED_CLIENTS = 8
TIGHT_LIMIT = ("narrow", 60, 1)
LOOSE_LIMIT = ("wide", 1_000_000_000, 1_000_000)


def measure(rig: Rig) -> Iterator[Figure]:
    """Measure refusals beside a neighbour, then submits with and without authentication."""
    with rig.store() as dsn, installation.serve(rig.postgres, dsn) as instance:
        yield from _refusals(rig, instance)
    yield from _authentication_cost(rig)


def _refusals(rig: Rig, instance: Installation) -> Iterator[Figure]:
    neighbour = Requests(instance.url, instance.key)
    limited = Requests(instance.url, _create_tenant(instance, *TIGHT_LIMIT))
    request = neighbour.post("/v1/tasks", TRUE_TASK)
    send_all(neighbour, [request] * 50, 1)
    count, rounds = rig.sizes.singles // 8, rig.sizes.rounds
    alone, beside = list[float](), list[float]()
    refused, admitted, seconds = 0, 0, 0.0
    for _ in range(rounds):
        alone += latencies(neighbour, request, count)
        with _submitting_beyond_limit(limited) as client:
            before, began = client.refused.value, time.perf_counter()
            beside += latencies(neighbour, request, count)
            refused += client.refused.value - before
            seconds += time.perf_counter() - began
        admitted += client.admitted.value
    checks.none_lost(instance.dsn, 50 + 2 * rounds * count + admitted)
    yield Figure(
        part="limits",
        name=f"refusals, {REFUSED_CLIENTS} clients of a tenant whose bucket is empty",
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


def _authentication_cost(rig: Rig) -> Iterator[Figure]:
    """Submit to two servers in turns, so that disturbances affect both alike."""
    with (
        rig.store() as guarded_dsn,
        rig.store() as open_dsn,
        installation.serve(rig.postgres, guarded_dsn) as guarded,
        installation.serve(
            rig.postgres, open_dsn, module="benchmarks.unauthenticated_server"
        ) as unauthenticated,
    ):
        servers = {
            "with": Requests(guarded.url, _create_tenant(guarded, *LOOSE_LIMIT)),
            "without": Requests(unauthenticated.url, unauthenticated.key),
        }
        rates: dict[str, list[float]] = {name: [] for name in servers}
        request = {
            name: requests.post("/v1/tasks", TRUE_TASK) for name, requests in servers.items()
        }
        for name, requests in servers.items():
            send_all(requests, [request[name]] * 200, CLIENTS)
        count = rig.sizes.singles // 4
        for _ in range(4 * rig.sizes.rounds):
            for name, requests in servers.items():
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


class _LimitedClient:
    """A process that submits beyond the limit, and its counts of responses so far."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("fork")
        self.refused = self._context.Value("q", 0)
        self.admitted = self._context.Value("q", 0)
        self.stopped = self._context.Event()

    def start(self, requests: Requests) -> BaseProcess:
        """Start the process; it runs until `stopped` is set."""
        process = self._context.Process(target=self._submit_until_stopped, args=(requests,))
        process.start()
        return process

    def _submit_until_stopped(self, requests: Requests) -> None:
        request = requests.post("/v1/tasks", TRUE_TASK)
        while not self.stopped.is_set():
            _, bodies = send_all(
                requests, [request] * 400, REFUSED_CLIENTS, expected=(b"201", b"429")
            )
            refused = sum(b'"limit_exceeded"' in answer for answer in bodies)
            self.refused.value += refused
            self.admitted.value += len(bodies) - refused


@contextmanager
def _submitting_beyond_limit(requests: Requests) -> Iterator[_LimitedClient]:
    """Send requests beyond the limit for the duration of the block."""
    client = _LimitedClient()
    process = client.start(requests)
    try:
        while not client.refused.value and process.is_alive():
            time.sleep(0.01)
        yield client
    finally:
        client.stopped.set()
        process.join()
    if process.exitcode:
        raise RuntimeError("a request beyond the limit was neither refused nor admitted")


def _create_tenant(instance: Installation, plan: str, tasks_per_hour: int, burst: int) -> str:
    """Create a tenant with its own plan, and return a key for submits."""
    cluster.run(
        instance.dsn,
        f"""insert into duly.plans (name, delay_tolerance, execution_cap, max_execution_cap,
                                    weight, tasks_per_hour, burst)
            values ('{plan}', '300 s', '1 h', '24 h', 1, {tasks_per_hour}, {burst})""",
        f"insert into duly.tenants (name, plan) values ('{plan}', '{plan}')",
    )
    return installation.create_key(instance.dsn, plan)
