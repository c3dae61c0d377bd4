"""Random worlds keep the invariants; `DULY_SEEDS=200` runs more, `python -m tests.sim 17` one."""

import os

import pytest

from tests.sim.random_worlds import check_seed

SEEDS = int(os.environ.get("DULY_SEEDS", "20"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_world_keeps_the_invariants(seed):
    check_seed(seed)
