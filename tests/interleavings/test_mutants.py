"""The explorer can fail: each mistake on purpose breaks a law within a bounded number of seeds."""

import pytest

from tests.interleavings.explorer import Broken, exploring
from tests.interleavings.mutants import MUTANTS

MOST = 200
"""How many seeds a mistake may survive."""


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_mistake_is_found(dsn, monkeypatch, mutant):
    theme, *mistakes = MUTANTS[mutant]
    with pytest.MonkeyPatch.context() as changes:
        sabotage = "".join(make(changes) for make in mistakes)
        async with exploring(dsn, monkeypatch, sabotage) as explorer:
            with pytest.raises(Broken):
                for seed in range(MOST):
                    await explorer.run(seed, theme)
