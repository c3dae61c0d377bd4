"""Server faults: kill, stop, and rolling restart."""

import random

from tests.torture.cluster import Cluster
from tests.torture.fault import Inflicted, now
from tests.torture.processes import until
from tests.torture.proxy import Behaviour

SILENCE = 1.0
"""Seconds in which a server is told nothing of what it has committed, before it is killed."""


def leader_killed(cluster: Cluster, dice: random.Random) -> Inflicted:
    name, term = _leader(cluster)
    began = now()
    cluster.kill(name)
    return Inflicted(name, dice.uniform(3, 8), lambda: cluster.start(name), term=term, began=began)


def leader_stopped(cluster: Cluster, dice: random.Random) -> Inflicted:
    name, term = _leader(cluster)
    began = now()
    cluster.stop(name)
    return Inflicted(
        name, dice.uniform(10, 30), lambda: cluster.resume(name), term=term, began=began
    )


def server_killed(cluster: Cluster, dice: random.Random) -> Inflicted:
    name = _any(cluster, dice)
    cluster.kill(name)
    return Inflicted(name, dice.uniform(1, 8), lambda: cluster.start(name))


def server_killed_before_answering(cluster: Cluster, dice: random.Random) -> Inflicted:
    """Commit, and die before anybody hears of it.

    PostgreSQL gets what the server says, and the server nothing of what PostgreSQL answers.
    """
    name = _any(cluster, dice)
    postgres = cluster.postgres
    postgres.detour([name], Behaviour())
    try:
        until(lambda: cluster.answers(name), f"{name} to speak through the proxy", 20)
        dice_seconds = dice.uniform(0.2, SILENCE)
        postgres.detour_behaviour(Behaviour(stall="answers"))
        cluster.wait_for(dice_seconds)
        killed = now()
        cluster.kill(name)
    finally:
        postgres.end_detour()
    return Inflicted(name, dice.uniform(1, 5), lambda: cluster.start(name), since=killed)


def rolling_restart(cluster: Cluster, dice: random.Random) -> Inflicted:
    """Replace every server, one after the other, each when the one before serves again."""
    names = dice.sample(cluster.server_names, len(cluster.server_names))
    for name in names:
        cluster.restart(name)
        cluster.await_server(name)
    return Inflicted(" ".join(names), since=now())


def _leader(cluster: Cluster) -> tuple[str, int]:
    name = until(cluster.leader, "somebody to lead", 30)
    return name, cluster.term()


def _any(cluster: Cluster, dice: random.Random) -> str:
    """Return a server that runs, if possible while another one does, too."""
    return dice.choice([name for name in cluster.server_names if cluster.is_up(name)])
