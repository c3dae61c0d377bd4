"""The simulator runs the real policies: a mistake in one of them is found."""

import pytest

from duly.model.queues.peak import NO_PEAK
from duly.model.resources import Resources
from duly.policy import placement, queueing
from duly.policy.budget.peak import next_peak
from duly.policy.fairness.shares import PoolShares, TenantShare
from duly.sim import scheduler
from duly.sim.scheduler import FairTurns
from tests.sim.builders import burst, nodes, run, task_class, tenant, workload
from tests.sim.invariants import Invariants, Violation
from tests.sim.random_worlds import check_seed
from tests.sim.test_promises import shares_of_weights


def is_found(seeds=40):
    for seed in range(seeds):
        try:
            check_seed(seed)
        except AssertionError:
            return True
    return False


def test_shares_that_ignore_weights_are_found(monkeypatch):
    monkeypatch.setattr(PoolShares, "weight", lambda self, tenant: 1)
    light, _, heavy = shares_of_weights()
    assert heavy / light < 1.5


def test_entitlement_for_all_is_found(monkeypatch):
    monkeypatch.setattr(TenantShare, "is_entitled", lambda self, fractions: True)
    assert is_found()


def test_a_node_that_is_filled_beyond_its_capacity_is_found(monkeypatch):
    honest = Resources.count_fitting
    monkeypatch.setattr(
        Resources, "count_fitting", lambda self, *rest: min(honest(self, *rest) + 1, rest[-1])
    )
    with pytest.raises(Violation, match="above its capacity"):
        run(
            workload([tenant("one", burst(50))], fleet=[nodes(1, 4)]),
            observer=Invariants(),
        )


def test_a_rank_that_is_upside_down_is_found(monkeypatch):
    monkeypatch.setattr(queueing, "rank", lambda task: (task.start_by, -task.id))
    monkeypatch.setattr(FairTurns, "key", staticmethod(queueing.rank))
    assert is_found()


def test_a_placement_that_leaves_room_idle_is_found(monkeypatch):
    honest = placement.place
    monkeypatch.setattr(placement, "place", lambda asks, *fleet: honest(asks[:1], *fleet))
    small = task_class(tolerance=3600)
    with pytest.raises(Violation, match="has room"):
        run(workload([tenant("one", burst(9))], [small]), observer=Invariants())


def test_a_peak_that_forgets_since_when_it_is_is_found(monkeypatch):
    def forgetful(state, *rest):
        return next_peak(NO_PEAK, *rest)

    monkeypatch.setattr(scheduler, "next_peak", forgetful)
    assert is_found()
