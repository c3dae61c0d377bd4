"""Whatever the order of statements, whoever dies between two of them: the laws hold.

`DULY_SEEDS=2000` runs more of them; `DULY_SEED=17` runs one, and tells its story.
"""

import os

import pytest

from tests.interleavings.explorer import exploring

SEEDS = int(os.environ.get("DULY_SEEDS", "150"))
CHUNK = 25
ONE = os.environ.get("DULY_SEED")
CHUNKS = [range(first, min(first + CHUNK, SEEDS)) for first in range(0, SEEDS, CHUNK)]


@pytest.mark.parametrize(
    "seeds", [range(int(ONE), int(ONE) + 1)] if ONE else CHUNKS, ids=lambda seeds: str(seeds.start)
)
async def test_no_order_of_statements_breaks_a_law(dsn, monkeypatch, seeds):
    async with exploring(dsn, monkeypatch) as explorer:
        for seed in seeds:
            await explorer.run(seed)
