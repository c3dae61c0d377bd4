"""What happens to nodes: agents and whole machines die, stop, freeze, and run out of disk."""

import random

from tests.torture.cluster import Cluster
from tests.torture.fault import Inflicted, now


def agent_killed(cluster: Cluster, dice: random.Random) -> Inflicted:
    name, tasks = _node(cluster, dice)
    began = now()
    cluster.kill(name)
    return Inflicted(
        name, dice.uniform(3, 25), lambda: cluster.start(name), tasks=tasks, began=began
    )


def node_killed(cluster: Cluster, dice: random.Random) -> Inflicted:
    name, tasks = _node(cluster, dice)
    began = now()
    cluster.kill_node(name)
    return Inflicted(
        name, dice.uniform(20, 30), lambda: cluster.revive_node(name), tasks=tasks, began=began
    )


def agent_stopped(cluster: Cluster, dice: random.Random) -> Inflicted:
    name, tasks = _node(cluster, dice)
    began = now()
    cluster.stop(name)
    return Inflicted(
        name, dice.uniform(22, 60), lambda: cluster.resume(name), tasks=tasks, began=began
    )


def node_frozen(cluster: Cluster, dice: random.Random) -> Inflicted:
    name, tasks = _node(cluster, dice)
    began = now()
    cluster.freeze_node(name)
    return Inflicted(
        name, dice.uniform(22, 60), lambda: cluster.thaw_node(name), tasks=tasks, began=began
    )


def node_disk_full(cluster: Cluster, dice: random.Random) -> Inflicted:
    name, _ = _node(cluster, dice)
    cluster.fill_disk(name)
    return Inflicted(name, dice.uniform(5, 20), lambda: cluster.free_disk(name))


def _node(cluster: Cluster, dice: random.Random) -> tuple[str, list[int]]:
    """Return a node that is up, and what runs on it; one that is busy, if there is one."""
    up = [name for name in cluster.node_names if cluster.is_up(name)]
    busy = [name for name in up if cluster.running_on(name)]
    name = dice.choice(busy or up)
    return name, cluster.running_on(name)
