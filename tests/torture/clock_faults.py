"""Clock faults: jumps and oscillation."""

import random
import threading

from tests.torture.clocks import NO_OFFSET
from tests.torture.cluster import Cluster
from tests.torture.fault import InjectedFault

OSCILLATION_SECONDS = 1.5
"""Seconds between two jumps of an oscillating clock; programs read the offset once a second."""


def server_clock_jumps(cluster: Cluster, rng: random.Random) -> InjectedFault:
    return _jump(cluster, rng.choice(cluster.server_names), rng)


def agent_clock_jumps(cluster: Cluster, rng: random.Random) -> InjectedFault:
    return _jump(cluster, rng.choice(cluster.node_names), rng)


def clock_swings(cluster: Cluster, rng: random.Random) -> InjectedFault:
    """Set the clock of a server or agent 5 seconds ahead and behind, alternating."""
    name = rng.choice(cluster.names)
    stopped = threading.Event()
    thread = threading.Thread(target=_oscillate, args=(cluster, name, stopped), daemon=True)
    thread.start()

    def undo() -> None:
        stopped.set()
        thread.join()
        cluster.faketime(name, NO_OFFSET)

    return InjectedFault(name, rng.uniform(10, 20), undo)


def database_clock_jumps(cluster: Cluster, rng: random.Random) -> InjectedFault:
    offset = rng.choice(("+60", "-60"))
    cluster.postgres.clock(offset)
    return InjectedFault(offset, rng.uniform(10, 20), lambda: cluster.postgres.clock(NO_OFFSET))


def _jump(cluster: Cluster, name: str, rng: random.Random) -> InjectedFault:
    offset = rng.choice(("+3600", "-3600"))
    cluster.faketime(name, offset)
    return InjectedFault(
        f"{name} {offset}", rng.uniform(5, 20), lambda: cluster.faketime(name, NO_OFFSET)
    )


def _oscillate(cluster: Cluster, name: str, stopped: threading.Event) -> None:
    while True:
        for offset in ("+5", "-5"):
            cluster.faketime(name, offset)
            if stopped.wait(OSCILLATION_SECONDS):
                return
