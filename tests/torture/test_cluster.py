"""A cluster in namespaces runs tasks."""

import pytest

from tests.torture.cluster import Cluster

pytestmark = [pytest.mark.faults]


def test_a_cluster_runs_tasks(cluster: Cluster) -> None:
    with cluster.client() as client:
        tasks = [client.submit(source="#!/bin/sh\necho hello") for _ in range(5)]
        for task in tasks:
            assert client.wait(task["id"], timeout=30)["status"] == "done"
    assert cluster.leader() in cluster.server_names
