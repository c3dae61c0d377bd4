"""PostgreSQL faults: crash, failover, latency, locks, full disk, cancelled synchronous commits."""

import random
import time

from tests.torture.cluster import Cluster
from tests.torture.fault import InjectedFault, now
from tests.torture.proxy import Behaviour

LOCK_SECONDS = 20.0


def postgres_killed(cluster: Cluster, rng: random.Random) -> InjectedFault:
    """Kill the primary and start it again; recovery counts from when it accepts connections."""
    postgres = cluster.postgres
    postgres.primary.kill()
    injected = InjectedFault(postgres.primary.name, rng.uniform(1, 6))

    def undo() -> None:
        postgres.revive()
        injected.since = now()

    injected.undo = undo
    return injected


def failover(cluster: Cluster, rng: random.Random) -> InjectedFault:
    """Isolate the primary, promote the standby, and later rebuild the old primary as standby."""
    old = cluster.postgres.primary.name
    cluster.network.isolate(old)
    cluster.sleep(rng.uniform(0, 3))
    return _promote(cluster, old, rng)


def sync_waits_cancelled(cluster: Cluster, rng: random.Random) -> InjectedFault:
    """Cut the standby off, and cancel the commits that wait for it: none may be acknowledged."""
    postgres = cluster.postgres
    pair = postgres.primary.name, postgres.standby.name
    cluster.network.cut(*pair)
    cancelled = _cancel(cluster, seconds=rng.uniform(2, 6))
    return InjectedFault(f"{cancelled} commits", undo=lambda: cluster.network.mend(*pair))


def sync_waits_cancelled_then_failover(cluster: Cluster, rng: random.Random) -> InjectedFault:
    """Cancel waiting commits, then promote the standby, which has none of them."""
    old = cluster.postgres.primary.name
    cluster.network.cut(old, cluster.postgres.standby.name)
    cancelled = _cancel(cluster, seconds=rng.uniform(2, 6))
    cluster.network.isolate(old)
    injected = _promote(cluster, old, rng)
    injected.on += f" after {cancelled} cancelled commits"
    return injected


def standby_lost(cluster: Cluster, rng: random.Random) -> InjectedFault:
    standby = cluster.postgres.standby
    standby.kill()
    return InjectedFault(standby.name, rng.uniform(5, 15), cluster.postgres.revive)


def slow_by_latency(cluster: Cluster, rng: random.Random) -> InjectedFault:
    cluster.postgres.redirect(cluster.server_names, Behaviour(latency=0.2))
    return InjectedFault("+200 ms", rng.uniform(10, 20), cluster.postgres.end_redirect)


def slow_by_bandwidth(cluster: Cluster, rng: random.Random) -> InjectedFault:
    name = cluster.postgres.primary.name
    cluster.network.throttle(name, "1mbit")
    return InjectedFault(name, rng.uniform(10, 20), lambda: cluster.network.release(name))


def stalled(cluster: Cluster, rng: random.Random) -> InjectedFault:
    """Stall the traffic of PostgreSQL while every connection stays open."""
    stalled_traffic = rng.choice(("all", "responses", "requests"))
    cluster.postgres.redirect(cluster.server_names, Behaviour())
    cluster.sleep(1)
    cluster.postgres.set_proxy_behaviour(Behaviour(stall=stalled_traffic))
    return InjectedFault(stalled_traffic, rng.uniform(3, 12), cluster.postgres.end_redirect)


def table_locked(cluster: Cluster, rng: random.Random) -> InjectedFault:
    table = rng.choice(("live", "tasks", "attempts", "terms", "incarnations", "servers"))
    lock = cluster.postgres.lock_table(table, LOCK_SECONDS)
    return InjectedFault(table, LOCK_SECONDS, lock.join)


def database_disk_full(cluster: Cluster, rng: random.Random) -> InjectedFault:
    postgres = cluster.postgres
    postgres.fill_disk()
    injected = InjectedFault(postgres.primary.name, rng.uniform(5, 10))

    def undo() -> None:
        postgres.free_disk()
        postgres.revive()
        injected.since = now()

    injected.undo = undo
    return injected


def _promote(cluster: Cluster, old: str, rng: random.Random) -> InjectedFault:
    postgres = cluster.postgres
    postgres.promote()
    promoted = now()

    def undo() -> None:
        postgres.kill(old)  # before any client can reach it again
        cluster.network.rejoin(old)
        postgres.rebuild_standby()

    return InjectedFault(old, rng.uniform(15, 25), undo, since=promoted)


def _cancel(cluster: Cluster, *, seconds: float) -> int:
    cancelled, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        cancelled += cluster.postgres.cancel_sync_waits()
        cluster.sleep(0.1)
    return cancelled
