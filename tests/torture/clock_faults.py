"""Clock faults: jumps and oscillation."""

import random
import threading

from tests.torture.clocks import RIGHT
from tests.torture.cluster import Cluster
from tests.torture.fault import Inflicted

SWING = 1.5
"""Seconds between two jumps of a clock that swings; programs look once a second."""


def server_clock_jumps(cluster: Cluster, dice: random.Random) -> Inflicted:
    return _jump(cluster, dice.choice(cluster.server_names), dice)


def agent_clock_jumps(cluster: Cluster, dice: random.Random) -> Inflicted:
    return _jump(cluster, dice.choice(cluster.node_names), dice)


def clock_swings(cluster: Cluster, dice: random.Random) -> Inflicted:
    """Let a server's or an agent's clock be 5 seconds ahead and behind, in turn."""
    name = dice.choice(cluster.names)
    enough = threading.Event()
    thread = threading.Thread(target=_swing, args=(cluster, name, enough), daemon=True)
    thread.start()

    def undo() -> None:
        enough.set()
        thread.join()
        cluster.faketime(name, RIGHT)

    return Inflicted(name, dice.uniform(10, 20), undo)


def database_clock_jumps(cluster: Cluster, dice: random.Random) -> Inflicted:
    offset = dice.choice(("+60", "-60"))
    cluster.postgres.clock(offset)
    return Inflicted(offset, dice.uniform(10, 20), lambda: cluster.postgres.clock(RIGHT))


def _jump(cluster: Cluster, name: str, dice: random.Random) -> Inflicted:
    offset = dice.choice(("+3600", "-3600"))
    cluster.faketime(name, offset)
    return Inflicted(f"{name} {offset}", dice.uniform(5, 20), lambda: cluster.faketime(name, RIGHT))


def _swing(cluster: Cluster, name: str, enough: threading.Event) -> None:
    while True:
        for offset in ("+5", "-5"):
            cluster.faketime(name, offset)
            if enough.wait(SWING):
                return
