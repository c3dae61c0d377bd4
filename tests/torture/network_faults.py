"""Network faults: partitions, one-way loss, flapping links, resets and half-open connections."""

import itertools
import random
import threading
from collections.abc import Callable

from tests.torture.cluster import Cluster
from tests.torture.fault import Inject, InjectedFault
from tests.torture.proxy import Behaviour

Pairs = list[tuple[str, str]]
Choose = Callable[[Cluster, random.Random], Pairs]
FLAP_SECONDS = 1.0
"""Seconds between two changes of a flapping link."""


def agent_and_servers(cluster: Cluster, rng: random.Random) -> Pairs:
    node = rng.choice(cluster.node_names)
    return [(node, server) for server in cluster.server_names]


def server_and_database(cluster: Cluster, rng: random.Random) -> Pairs:
    server = cluster.leader() if rng.random() < 0.5 else None
    server = server or rng.choice(cluster.server_names)
    return [(server, database) for database in cluster.database_names]


def servers(cluster: Cluster, rng: random.Random) -> Pairs:
    return list(itertools.combinations(cluster.server_names, 2))


def every_agent_and_server(cluster: Cluster, rng: random.Random) -> Pairs:
    return list(itertools.product(cluster.node_names, cluster.server_names))


def every_server_and_database(cluster: Cluster, rng: random.Random) -> Pairs:
    return list(itertools.product(cluster.server_names, cluster.database_names))


def partition(choose: Choose) -> Inject:
    """Drop all packets in both directions."""

    def inject(cluster: Cluster, rng: random.Random) -> InjectedFault:
        pairs = choose(cluster, rng)
        for pair in pairs:
            cluster.network.cut(*pair)
        return InjectedFault(_describe(pairs), rng.uniform(5, 30), lambda: _mend(cluster, pairs))

    return inject


def one_way(choose: Choose) -> Inject:
    """Drop all packets in one direction."""

    def inject(cluster: Cluster, rng: random.Random) -> InjectedFault:
        pairs = choose(cluster, rng)
        if rng.random() < 0.5:
            pairs = [(b, a) for a, b in pairs]
        for pair in pairs:
            cluster.network.cut(*pair, one_way=True)
        return InjectedFault(_describe(pairs), rng.uniform(5, 30), lambda: _mend(cluster, pairs))

    return inject


def flapping(choose: Choose) -> Inject:
    """Cut and restore the links alternately."""

    def inject(cluster: Cluster, rng: random.Random) -> InjectedFault:
        pairs = choose(cluster, rng)
        stopped = threading.Event()
        thread = threading.Thread(target=_flap, args=(cluster, pairs, stopped), daemon=True)
        thread.start()

        def undo() -> None:
            stopped.set()
            thread.join()
            _mend(cluster, pairs)

        return InjectedFault(_describe(pairs), rng.uniform(10, 20), undo)

    return inject


def reset(choose: Choose) -> Inject:
    """Reset the existing connections."""

    def inject(cluster: Cluster, rng: random.Random) -> InjectedFault:
        pairs = choose(cluster, rng)
        broken = sum(cluster.network.reset_connections(*pair) for pair in pairs)
        return InjectedFault(f"{_describe(pairs)}: {broken} connections")

    return inject


def half_open(choose: Choose) -> Inject:
    """Make the existing connections half-open."""

    def inject(cluster: Cluster, rng: random.Random) -> InjectedFault:
        pairs = choose(cluster, rng)
        broken = sum(cluster.network.make_half_open(*pair) for pair in pairs)
        # The ports of half-open connections are not reused during the fault.
        return InjectedFault(
            f"{_describe(pairs)}: {broken} connections", 20, cluster.network.clear_half_open
        )

    return inject


def cut_short(cluster: Cluster, rng: random.Random) -> InjectedFault:
    """Reset every connection to PostgreSQL after a number of bytes, in the middle of a message."""
    size = rng.randrange(5_000, 50_000)
    cluster.postgres.redirect(cluster.server_names, Behaviour(cut_after=size))
    return InjectedFault(f"after {size} bytes", rng.uniform(5, 15), cluster.postgres.end_redirect)


def _flap(cluster: Cluster, pairs: Pairs, stopped: threading.Event) -> None:
    while True:
        for pair in pairs:
            cluster.network.cut(*pair)
        if stopped.wait(FLAP_SECONDS):
            return
        _mend(cluster, pairs)
        if stopped.wait(FLAP_SECONDS):
            return


def _mend(cluster: Cluster, pairs: Pairs) -> None:
    for pair in pairs:
        cluster.network.mend(*pair)


def _describe(pairs: Pairs) -> str:
    from_, to = sorted({a for a, _ in pairs}), sorted({b for _, b in pairs})
    return f"{'+'.join(from_)} / {'+'.join(to)}"
