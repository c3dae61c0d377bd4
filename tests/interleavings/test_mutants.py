"""The explorer can fail: each mistake on purpose breaks a law within a bounded number of seeds.

One mistake of a theme, if it is found soon; `DULY_TORTURE=1` makes all of them.
"""

import os

import pytest

from tests.interleavings.explorer import Broken, exploring
from tests.interleavings.mutants import MUTANTS

MOST = 200
"""How many seeds a mistake may survive."""


SELDOM = {
    "a task that is being changed is given up",
    "a lease does not check its term",
    "a lease goes by limits that have changed",
    "a suspension lets leases pass that were decided before",
}
"""Found by one seed in a hundred: half a minute each."""
ONE_EACH = list(
    {theme: name for name, (theme, *_) in reversed(MUTANTS.items()) if name not in SELDOM}.values()
)


@pytest.mark.parametrize("mutant", MUTANTS if "DULY_TORTURE" in os.environ else ONE_EACH)
async def test_a_mistake_is_found(dsn, monkeypatch, mutant):
    theme, *mistakes = MUTANTS[mutant]
    with pytest.MonkeyPatch.context() as changes:
        sabotage = "".join(make(changes) for make in mistakes)
        async with exploring(dsn, monkeypatch, sabotage) as explorer:
            with pytest.raises(Broken):
                for seed in range(MOST):
                    await explorer.run(seed, theme)
