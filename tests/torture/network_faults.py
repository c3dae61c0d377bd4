"""What happens between hosts: nothing passes, one way or both, for good or now and then."""

import itertools
import random
import threading
from collections.abc import Callable

from tests.torture.cluster import Cluster
from tests.torture.fault import Inflict, Inflicted
from tests.torture.proxy import Behaviour

Pairs = list[tuple[str, str]]
Choose = Callable[[Cluster, random.Random], Pairs]
FLAP = 1.0
"""Seconds between two changes of a link that comes and goes."""


def agent_and_servers(cluster: Cluster, dice: random.Random) -> Pairs:
    node = dice.choice(cluster.node_names)
    return [(node, server) for server in cluster.server_names]


def server_and_database(cluster: Cluster, dice: random.Random) -> Pairs:
    server = cluster.leader() if dice.random() < 0.5 else None
    server = server or dice.choice(cluster.server_names)
    return [(server, database) for database in cluster.database_names]


def servers(cluster: Cluster, dice: random.Random) -> Pairs:
    return list(itertools.combinations(cluster.server_names, 2))


def every_agent_and_server(cluster: Cluster, dice: random.Random) -> Pairs:
    return list(itertools.product(cluster.node_names, cluster.server_names))


def every_server_and_database(cluster: Cluster, dice: random.Random) -> Pairs:
    return list(itertools.product(cluster.server_names, cluster.database_names))


def partition(choose: Choose) -> Inflict:
    """Let nothing pass in either direction."""

    def inflict(cluster: Cluster, dice: random.Random) -> Inflicted:
        pairs = choose(cluster, dice)
        for pair in pairs:
            cluster.network.cut(*pair)
        return Inflicted(_named(pairs), dice.uniform(5, 30), lambda: _mend(cluster, pairs))

    return inflict


def one_way(choose: Choose) -> Inflict:
    """Let nothing pass in one direction, whichever."""

    def inflict(cluster: Cluster, dice: random.Random) -> Inflicted:
        pairs = choose(cluster, dice)
        if dice.random() < 0.5:
            pairs = [(b, a) for a, b in pairs]
        for pair in pairs:
            cluster.network.cut(*pair, one_way=True)
        return Inflicted(_named(pairs), dice.uniform(5, 30), lambda: _mend(cluster, pairs))

    return inflict


def flapping(choose: Choose) -> Inflict:
    """Let everything pass, and nothing, in turn."""

    def inflict(cluster: Cluster, dice: random.Random) -> Inflicted:
        pairs = choose(cluster, dice)
        enough = threading.Event()
        thread = threading.Thread(target=_flap, args=(cluster, pairs, enough), daemon=True)
        thread.start()

        def undo() -> None:
            enough.set()
            thread.join()
            _mend(cluster, pairs)

        return Inflicted(_named(pairs), dice.uniform(10, 20), undo)

    return inflict


def reset(choose: Choose) -> Inflict:
    """Break the connections that there are, loudly."""

    def inflict(cluster: Cluster, dice: random.Random) -> Inflicted:
        pairs = choose(cluster, dice)
        broken = sum(cluster.network.reset_connections(*pair) for pair in pairs)
        return Inflicted(f"{_named(pairs)}: {broken} connections")

    return inflict


def half_open(choose: Choose) -> Inflict:
    """Break the connections that there are, and tell nobody."""

    def inflict(cluster: Cluster, dice: random.Random) -> Inflicted:
        pairs = choose(cluster, dice)
        broken = sum(cluster.network.kill_silently(*pair) for pair in pairs)
        # Until the ports may be used again, which takes far longer than anybody waits here.
        return Inflicted(f"{_named(pairs)}: {broken} connections", 20, cluster.network.forget_dead)

    return inflict


def cut_short(cluster: Cluster, dice: random.Random) -> Inflicted:
    """Break every connection to PostgreSQL after a number of bytes, in the middle of something."""
    size = dice.randrange(5_000, 50_000)
    cluster.postgres.detour(cluster.server_names, Behaviour(cut_after=size))
    return Inflicted(f"after {size} bytes", dice.uniform(5, 15), cluster.postgres.end_detour)


def _flap(cluster: Cluster, pairs: Pairs, enough: threading.Event) -> None:
    while True:
        for pair in pairs:
            cluster.network.cut(*pair)
        if enough.wait(FLAP):
            return
        _mend(cluster, pairs)
        if enough.wait(FLAP):
            return


def _mend(cluster: Cluster, pairs: Pairs) -> None:
    for pair in pairs:
        cluster.network.mend(*pair)


def _named(pairs: Pairs) -> str:
    from_, to = sorted({a for a, _ in pairs}), sorted({b for _, b in pairs})
    return f"{'+'.join(from_)} / {'+'.join(to)}"
