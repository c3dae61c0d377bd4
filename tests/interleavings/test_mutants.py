"""The explorer can fail: each mistake on purpose breaks a law within a bounded number of seeds.

One mistake of each theme; `DULY_TORTURE=1` makes all of them.
"""

import os

import pytest

from tests.interleavings.explorer import InvariantViolated, exploring
from tests.interleavings.mutants import MUTANTS

MOST = 200
"""How many seeds a mistake may survive."""


ONE_EACH = list({theme: name for name, (theme, *_) in reversed(MUTANTS.items())}.values())


@pytest.mark.parametrize("mutant", MUTANTS if "DULY_TORTURE" in os.environ else ONE_EACH)
async def test_a_mistake_is_found(dsn, monkeypatch, mutant):
    theme, *mistakes = MUTANTS[mutant]
    with pytest.MonkeyPatch.context() as changes:
        sabotage = "".join(make(changes) for make in mistakes)
        async with exploring(dsn, monkeypatch, sabotage) as explorer:
            with pytest.raises(InvariantViolated):
                for seed in range(MOST):
                    await explorer.run(seed, theme)
