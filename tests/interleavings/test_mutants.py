"""The explorer detects every mutant within a bounded number of seeds.

One mutant of each theme is run; `DULY_TORTURE=1` runs all of them.
"""

import os

import pytest

from tests.interleavings.explorer import InvariantViolated, exploring
from tests.interleavings.mutants import MUTANTS

MAX_SEEDS = 200


ONE_PER_THEME = list({theme: name for name, (theme, *_) in reversed(MUTANTS.items())}.values())


@pytest.mark.parametrize("mutant", MUTANTS if "DULY_TORTURE" in os.environ else ONE_PER_THEME)
async def test_a_mutant_is_detected(dsn, monkeypatch, mutant):
    theme, *mutations = MUTANTS[mutant]
    with pytest.MonkeyPatch.context() as mutated:
        sabotage = "".join(mutate(mutated) for mutate in mutations)
        async with exploring(dsn, monkeypatch, sabotage) as explorer:
            with pytest.raises(InvariantViolated):
                for seed in range(MAX_SEEDS):
                    await explorer.run(seed, theme)
