"""The explorer detects every mutant within a bounded number of seeds.

One mutant of each theme is run; `DULY_TORTURE=1` runs all of them.
"""

import os

import pytest

from tests.interleavings.explorer import InvariantViolated, exploring
from tests.interleavings.mutants import MUTANTS

MAX_SEEDS = 200
DETECTING_SEEDS = {
    "a capacity override does not fence leases that were decided before": 52,
    "a change of a dropped reservation is acknowledged": 15,
    "a lease does not lock the incarnation": 28,
    "a lease ignores that the node drains": 22,
    "a lease uses limits that have changed": 10,
    "a mark frees the room before the attempt has ended": 14,
    "a report is taken without its attempt and token": 33,
    "a reservation does not fence leases that were decided before": 8,
    "a task is leased with a shape that it no longer has": 24,
    "a task that got more time is cancelled as overdue": 19,
    "a task that is being updated is failed as unplaceable": 11,
    "all running tasks are swept": 35,
    "attaching an edge does not lock the upstream": 8,
    "the end of an upstream is counted twice": 11,
    "two servers charge one bucket concurrently": 26,
}
"""Seeds that have detected a mutant, tried first to save time; changes of the code outdate them."""

ONE_PER_THEME = list({theme: name for name, (theme, *_) in reversed(MUTANTS.items())}.values())


@pytest.mark.parametrize("mutant", MUTANTS if "DULY_TORTURE" in os.environ else ONE_PER_THEME)
async def test_a_mutant_is_detected(dsn, monkeypatch, mutant):
    theme, *mutations = MUTANTS[mutant]
    with pytest.MonkeyPatch.context() as mutated:
        sabotage = "".join(mutate(mutated) for mutate in mutations)
        async with exploring(dsn, monkeypatch, sabotage) as explorer:
            with pytest.raises(InvariantViolated):
                for seed in (DETECTING_SEEDS.get(mutant, 0), *range(MAX_SEEDS)):
                    await explorer.run(seed, theme)
