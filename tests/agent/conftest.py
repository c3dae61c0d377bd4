import os

import pytest

from duly.agent import hierarchies
from tests.agent.node import Doorbell, new_data, running

ROOT = os.geteuid() == 0


@pytest.fixture(params=["cgroup", "uid", "shared"] if ROOT else ["shared"])
async def node(request):
    """Give a node of every kind that this user can have."""
    async with running(request.param) as node:
        if request.param == "cgroup" and not node.layout.folders:
            pytest.skip("no cgroup can be had here")
        yield node


@pytest.fixture
async def best_node():
    """Give a node as good as this user can have."""
    async with running("cgroup" if ROOT else "shared") as node:
        yield node


@pytest.fixture
def doorbell():
    folder = new_data()
    bell = Doorbell(folder)
    yield bell
    bell.close()
    folder.rmdir()


@pytest.fixture
def needs_memory_controller():
    found = hierarchies.find("duly-test-probe")
    hierarchies.sweep("duly-test-probe")
    if not found.limits_memory:
        pytest.skip("no memory controller can be had here")
