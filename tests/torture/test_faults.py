"""Each fault happens for real, and the cluster gets over it in the time that is promised.

All of them take a quarter of an hour, so that only a few are tried unless DULY_FAULTS says
`all`, or names some.
"""

import os
import random
import time
from collections.abc import Iterator

import pytest

from duly.client.sync import Client
from tests.torture.cluster import Cluster
from tests.torture.fault import Fault, Inflicted, Recovered, now
from tests.torture.faults import FAULTS, possible
from tests.torture.processes import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]
SHORT = ("connections to database reset",)
"""Of the others, some come in the short storm; all of them come with DULY_FAULTS=all."""
LONGER = (*SHORT, "node killed")
"""With DULY_TORTURE: a lease lasts its full 15 seconds here, as it does in the short storm."""
DEFAULT = LONGER if os.environ.get("DULY_TORTURE") else SHORT
CHOSEN = os.environ.get("DULY_FAULTS", ",".join(DEFAULT))
NAMES = [fault.name for fault in possible() if CHOSEN == "all" or fault.name in CHOSEN.split(",")]


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with cluster.client(seconds=120) as client:
        yield client


def test_it_runs_tasks_before_anything_happens_to_it(cluster: Cluster) -> None:
    with cluster.client() as client:
        tasks = [client.submit(source="#!/bin/sh\necho hello") for _ in range(5)]
        for task in tasks:
            assert client.wait(task["id"], timeout=30)["status"] == "done"
    assert cluster.leader() in cluster.server_names


@pytest.mark.parametrize("name", NAMES)
def test_the_cluster_gets_over(name: str, cluster: Cluster, client: Client) -> None:
    fault = FAULTS[name]
    before = [submit(client, "sleep 4") for _ in range(4)]
    until(lambda: any(map(cluster.running_on, cluster.node_names)), "a node to be busy", 20)

    inflicted = fault.inflict(cluster, random.Random(name))
    recovered = None
    if fault.clock_starts(inflicted) is not None:
        recovered = seconds_to_recover(fault, inflicted, cluster, client)
    time.sleep(max(0.0, inflicted.began + min(inflicted.lasts, 25) - now()))
    inflicted.heal()
    if recovered is None:
        recovered = seconds_to_recover(fault, inflicted, cluster, client)
    print(f"\n{name} ({inflicted.on}): {fault.recovered} after {recovered:.1f} s", flush=True)
    for node in cluster.node_names:
        cluster.await_node(node)
    for task in [*before, submit(client, "true")]:
        assert client.wait(task, timeout=90)["status"] == "done"
    assert recovered <= fault.target


def submit(client: Client, work: str) -> str:
    return client.submit(source=f"#!/bin/sh\n{work}", on_lost="retry")["id"]


def seconds_to_recover(
    fault: Fault, inflicted: Inflicted, cluster: Cluster, client: Client
) -> float:
    began = fault.clock_starts(inflicted)
    assert began is not None
    match fault.recovered:
        case Recovered.SUBMIT:
            submit(client, "true")
        case Recovered.DISPATCH:
            # Only servers that can answer are asked: how long a client waits for one that is
            # stopped is another question.
            with cluster.client(*filter(cluster.is_up, cluster.server_names)) as other:
                submit(other, "sleep 2")
            until(lambda: cluster.leases_since(inflicted.term), "a lease in another term", 60)
        case Recovered.CONVERGED:
            assert client.wait(submit(client, "true"), timeout=90)["status"] == "done"
        case Recovered.RERUN:
            until(lambda: runs_again(inflicted, client), "a task to run elsewhere", 90)
    return now() - began


def runs_again(inflicted: Inflicted, client: Client) -> bool:
    tasks = [client.get_task(str(task)) for task in inflicted.tasks]
    return any(task["attempt"] > 1 and task["status"] in ("running", "done") for task in tasks)
