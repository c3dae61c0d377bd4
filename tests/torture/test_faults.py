"""The cluster recovers from each fault within its target.

All faults take a quarter of an hour, so only a few are injected unless DULY_FAULTS is `all` or a
list of names.
"""

import os
import random
import time
from collections.abc import Iterator

import pytest

from duly.client.sync import Client
from tests.torture.cluster import Cluster
from tests.torture.fault import Criterion, Fault, InjectedFault, now
from tests.torture.faults import FAULTS, available_faults
from tests.torture.processes import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]
SHORT = ("connections to database reset",)
"""Some others are part of `test_short.py`; DULY_FAULTS=all injects all of them."""
LONGER = (*SHORT, "node killed")
"""With DULY_TORTURE; leases have their full duration of 15 seconds here."""
DEFAULT = LONGER if os.environ.get("DULY_TORTURE") else SHORT
SELECTED = os.environ.get("DULY_FAULTS", ",".join(DEFAULT))
NAMES = [
    fault.name
    for fault in available_faults()
    if SELECTED == "all" or fault.name in SELECTED.split(",")
]


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with cluster.client(seconds=120) as client:
        yield client


def test_the_cluster_runs_tasks_without_faults(cluster: Cluster) -> None:
    with cluster.client() as client:
        tasks = [client.submit(source="#!/bin/sh\necho hello") for _ in range(5)]
        for task in tasks:
            assert client.wait(task["id"], timeout=30)["status"] == "done"
    assert cluster.leader() in cluster.server_names


@pytest.mark.parametrize("name", NAMES)
def test_the_cluster_recovers_from(name: str, cluster: Cluster, client: Client) -> None:
    fault = FAULTS[name]
    before = [submit(client, "sleep 4") for _ in range(4)]
    until(lambda: any(map(cluster.running_on, cluster.node_names)), "a node to be busy", 20)

    injected = fault.inject(cluster, random.Random(name))
    recovered = None
    if fault.measured_from(injected) is not None:
        recovered = seconds_to_recover(fault, injected, cluster, client)
    time.sleep(max(0.0, injected.began + min(injected.duration, 25) - now()))
    injected.heal()
    if recovered is None:
        recovered = seconds_to_recover(fault, injected, cluster, client)
    print(f"\n{name} ({injected.on}): {fault.criterion} after {recovered:.1f} s", flush=True)
    for node in cluster.node_names:
        cluster.await_node(node)
    for task in [*before, submit(client, "true")]:
        assert client.wait(task, timeout=90)["status"] == "done"
    assert recovered <= fault.target


def submit(client: Client, work: str) -> str:
    return client.submit(source=f"#!/bin/sh\n{work}", on_lost="retry")["id"]


def seconds_to_recover(
    fault: Fault, injected: InjectedFault, cluster: Cluster, client: Client
) -> float:
    began = fault.measured_from(injected)
    assert began is not None
    match fault.criterion:
        case Criterion.SUBMIT:
            submit(client, "true")
        case Criterion.DISPATCH:
            # Only servers that are up: the timeout of a client for a stopped one is not measured.
            with cluster.client(*filter(cluster.is_up, cluster.server_names)) as other:
                submit(other, "sleep 2")
            until(lambda: cluster.leases_since(injected.term), "a lease in a later term", 60)
        case Criterion.CONVERGED:
            assert client.wait(submit(client, "true"), timeout=90)["status"] == "done"
        case Criterion.RERUN:
            until(lambda: was_retried(injected, client), "a task to run elsewhere", 90)
    return now() - began


def was_retried(injected: InjectedFault, client: Client) -> bool:
    tasks = [client.get_task(str(task)) for task in injected.tasks]
    return any(task["attempt"] > 1 and task["status"] in ("running", "done") for task in tasks)
