"""Server faults: kill, stop, and rolling restart."""

import random

from tests.torture.cluster import Cluster
from tests.torture.fault import InjectedFault, now
from tests.torture.processes import until
from tests.torture.proxy import Behaviour

MAX_SILENCE_SECONDS = 1.0
"""Seconds for which responses of PostgreSQL are held back before the server is killed."""


def leader_killed(cluster: Cluster, rng: random.Random) -> InjectedFault:
    name, term = _leader(cluster)
    began = now()
    cluster.kill(name)
    return InjectedFault(
        name, rng.uniform(3, 8), lambda: cluster.start(name), term=term, began=began
    )


def leader_stopped(cluster: Cluster, rng: random.Random) -> InjectedFault:
    name, term = _leader(cluster)
    began = now()
    cluster.stop(name)
    return InjectedFault(
        name, rng.uniform(10, 30), lambda: cluster.resume(name), term=term, began=began
    )


def server_killed(cluster: Cluster, rng: random.Random) -> InjectedFault:
    name = _choose_server(cluster, rng)
    cluster.kill(name)
    return InjectedFault(name, rng.uniform(1, 8), lambda: cluster.start(name))


def server_killed_before_answering(cluster: Cluster, rng: random.Random) -> InjectedFault:
    """Kill a server after a commit, before it can respond to its clients.

    PostgreSQL receives the requests of the server, but its responses are held back.
    """
    name = _choose_server(cluster, rng)
    postgres = cluster.postgres
    postgres.redirect([name], Behaviour())
    try:
        until(lambda: cluster.is_responding(name), f"{name} to speak through the proxy", 20)
        silence = rng.uniform(0.2, MAX_SILENCE_SECONDS)
        postgres.set_proxy_behaviour(Behaviour(stall="responses"))
        cluster.sleep(silence)
        killed = now()
        cluster.kill(name)
    finally:
        postgres.end_redirect()
    return InjectedFault(name, rng.uniform(1, 5), lambda: cluster.start(name), since=killed)


def rolling_restart(cluster: Cluster, rng: random.Random) -> InjectedFault:
    """Restart every server, one after another, each when the previous one is ready."""
    names = rng.sample(cluster.server_names, len(cluster.server_names))
    for name in names:
        cluster.restart(name)
        cluster.await_server(name)
    return InjectedFault(" ".join(names), since=now())


def _leader(cluster: Cluster) -> tuple[str, int]:
    name = until(cluster.leader, "a leader", 30)
    return name, cluster.term()


def _choose_server(cluster: Cluster, rng: random.Random) -> str:
    """Return a server that is up."""
    return rng.choice([name for name in cluster.server_names if cluster.is_up(name)])
