"""The invariants hold whatever the order of statements, and whichever actor dies between two.

`DULY_SEEDS=2000` runs more seeds; `DULY_SEED=17` runs a single one.
"""

import os

import pytest

from tests.interleavings.explorer import exploring

SEEDS = int(os.environ.get("DULY_SEEDS", "100"))
CHUNK = 25
SINGLE_SEED = os.environ.get("DULY_SEED")
CHUNKS = [range(first, min(first + CHUNK, SEEDS)) for first in range(0, SEEDS, CHUNK)]


@pytest.mark.parametrize(
    "seeds",
    [range(int(SINGLE_SEED), int(SINGLE_SEED) + 1)] if SINGLE_SEED else CHUNKS,
    ids=lambda seeds: str(seeds.start),
)
async def test_no_order_of_statements_violates_an_invariant(dsn, monkeypatch, seeds):
    async with exploring(dsn, monkeypatch) as explorer:
        for seed in seeds:
            await explorer.run(seed)
