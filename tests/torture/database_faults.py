"""PostgreSQL faults: crash, failover, latency, locks, full disk, cancelled synchronous commits."""

import random
import time

from tests.torture.cluster import Cluster
from tests.torture.fault import Inflicted, now
from tests.torture.proxy import Behaviour

LOCK = 20.0


def postgres_killed(cluster: Cluster, dice: random.Random) -> Inflicted:
    """Kill the primary, and start it again; the clock starts when it takes connections."""
    postgres = cluster.postgres
    postgres.primary.kill()
    inflicted = Inflicted(postgres.primary.name, dice.uniform(1, 6))

    def undo() -> None:
        postgres.revive()
        inflicted.since = now()

    inflicted.undo = undo
    return inflicted


def failover(cluster: Cluster, dice: random.Random) -> Inflicted:
    """Cut the primary off, make the standby the primary, and later the old one its standby."""
    old = cluster.postgres.primary.name
    cluster.network.isolate(old)
    cluster.wait_for(dice.uniform(0, 3))
    return _promote(cluster, old, dice)


def sync_waits_cancelled(cluster: Cluster, dice: random.Random) -> Inflicted:
    """Let commits wait for the standby in vain, and cancel that: none of them may count."""
    postgres = cluster.postgres
    pair = postgres.primary.name, postgres.standby.name
    cluster.network.cut(*pair)
    cancelled = _cancel(cluster, seconds=dice.uniform(2, 6))
    return Inflicted(f"{cancelled} commits", undo=lambda: cluster.network.mend(*pair))


def sync_waits_cancelled_then_failover(cluster: Cluster, dice: random.Random) -> Inflicted:
    """As before, and then the standby, which has none of it, becomes the primary."""
    old = cluster.postgres.primary.name
    cluster.network.cut(old, cluster.postgres.standby.name)
    cancelled = _cancel(cluster, seconds=dice.uniform(2, 6))
    cluster.network.isolate(old)
    inflicted = _promote(cluster, old, dice)
    inflicted.on += f" after {cancelled} cancelled commits"
    return inflicted


def standby_lost(cluster: Cluster, dice: random.Random) -> Inflicted:
    standby = cluster.postgres.standby
    standby.kill()
    return Inflicted(standby.name, dice.uniform(5, 15), cluster.postgres.revive)


def slow_by_latency(cluster: Cluster, dice: random.Random) -> Inflicted:
    cluster.postgres.detour(cluster.server_names, Behaviour(latency=0.2))
    return Inflicted("+200 ms", dice.uniform(10, 20), cluster.postgres.end_detour)


def slow_by_bandwidth(cluster: Cluster, dice: random.Random) -> Inflicted:
    name = cluster.postgres.primary.name
    cluster.network.throttle(name, "1mbit")
    return Inflicted(name, dice.uniform(10, 20), lambda: cluster.network.release(name))


def stalled(cluster: Cluster, dice: random.Random) -> Inflicted:
    """Let PostgreSQL take everything and answer nothing, with every connection intact."""
    kind = dice.choice(("all", "answers", "requests"))
    cluster.postgres.detour(cluster.server_names, Behaviour())
    cluster.wait_for(1)
    cluster.postgres.detour_behaviour(Behaviour(stall=kind))
    return Inflicted(kind, dice.uniform(3, 12), cluster.postgres.end_detour)


def table_locked(cluster: Cluster, dice: random.Random) -> Inflicted:
    table = dice.choice(("live", "tasks", "attempts", "terms", "incarnations", "servers"))
    held = cluster.postgres.lock_table(table, LOCK)
    return Inflicted(table, LOCK, held.join)


def database_disk_full(cluster: Cluster, dice: random.Random) -> Inflicted:
    postgres = cluster.postgres
    postgres.fill_disk()
    inflicted = Inflicted(postgres.primary.name, dice.uniform(5, 10))

    def undo() -> None:
        postgres.free_disk()
        postgres.revive()
        inflicted.since = now()

    inflicted.undo = undo
    return inflicted


def _promote(cluster: Cluster, old: str, dice: random.Random) -> Inflicted:
    postgres = cluster.postgres
    postgres.promote()
    promoted = now()

    def undo() -> None:
        postgres.kill(old)  # fenced before anybody can reach it again
        cluster.network.rejoin(old)
        postgres.rebuild_standby()

    return Inflicted(old, dice.uniform(15, 25), undo, since=promoted)


def _cancel(cluster: Cluster, *, seconds: float) -> int:
    cancelled, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        cancelled += cluster.postgres.cancel_sync_waits()
        cluster.wait_for(0.1)
    return cancelled
