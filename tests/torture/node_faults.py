"""Node faults: agents and whole nodes are killed, stopped or frozen, or run out of disk space."""

import random

from tests.torture.cluster import Cluster
from tests.torture.fault import InjectedFault, now


def agent_killed(cluster: Cluster, rng: random.Random) -> InjectedFault:
    name, tasks = _choose_node(cluster, rng)
    began = now()
    cluster.kill(name)
    return InjectedFault(
        name, rng.uniform(3, 25), lambda: cluster.start(name), tasks=tasks, began=began
    )


def node_killed(cluster: Cluster, rng: random.Random) -> InjectedFault:
    name, tasks = _choose_node(cluster, rng)
    began = now()
    cluster.kill_node(name)
    return InjectedFault(
        name, rng.uniform(20, 30), lambda: cluster.revive_node(name), tasks=tasks, began=began
    )


def agent_stopped(cluster: Cluster, rng: random.Random) -> InjectedFault:
    name, tasks = _choose_node(cluster, rng)
    began = now()
    cluster.stop(name)
    return InjectedFault(
        name, rng.uniform(22, 60), lambda: cluster.resume(name), tasks=tasks, began=began
    )


def node_frozen(cluster: Cluster, rng: random.Random) -> InjectedFault:
    name, tasks = _choose_node(cluster, rng)
    began = now()
    cluster.freeze_node(name)
    return InjectedFault(
        name, rng.uniform(22, 60), lambda: cluster.thaw_node(name), tasks=tasks, began=began
    )


def node_disk_full(cluster: Cluster, rng: random.Random) -> InjectedFault:
    name, _ = _choose_node(cluster, rng)
    cluster.fill_disk(name)
    return InjectedFault(name, rng.uniform(5, 20), lambda: cluster.free_disk(name))


def _choose_node(cluster: Cluster, rng: random.Random) -> tuple[str, list[int]]:
    """Return a node that is up, preferably a busy one, and its running tasks."""
    up = [name for name in cluster.node_names if cluster.is_up(name)]
    busy = [name for name in up if cluster.running_on(name)]
    name = rng.choice(busy or up)
    return name, cluster.running_on(name)
