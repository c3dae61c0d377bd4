"""How far a node is trusted."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.policy.health import IGNORED_POINTS, MAX_PENALTY, NodeRecord, penalty
from duly.policy.placement import Placement, place
from tests.policy.test_placement import ask, fleets, lines, node

counts = st.integers(0, 10**9)
records = st.builds(NodeRecord, counts, counts, counts)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (NodeRecord(), 0),
        (NodeRecord(joins=1), 0),
        (NodeRecord(failures=IGNORED_POINTS), 0),
        (NodeRecord(failures=5), 1),
        (NodeRecord(losses=2), 1),
        (NodeRecord(joins=4), 1),
        (NodeRecord(failures=10), 2),
        (NodeRecord(failures=20, losses=5), 3),
        (NodeRecord(failures=10**6), MAX_PENALTY),
    ],
)
def test_a_record_leads_to_one_penalty(record, expected):
    assert penalty(record) == expected


@given(records, records)
def test_more_trouble_never_makes_a_node_preferred(one, more):
    worse = NodeRecord(
        one.failures + more.failures, one.losses + more.losses, one.joins + more.joins
    )
    assert 0 <= penalty(one) <= penalty(worse) <= MAX_PENALTY


def test_a_node_with_trouble_is_asked_after_sound_ones_however_well_the_task_fits():
    assert place([ask(1)], [node(1, used=1000, penalty=1), node(2)]) == [Placement(1, 20)]


def test_a_retry_rather_goes_to_a_node_with_trouble_than_to_the_one_that_failed():
    assert place([ask(1, avoid=2)], [node(1, penalty=8), node(2)]) == [Placement(1, 10)]


@given(lines(), fleets(), st.lists(st.integers(0, MAX_PENALTY), min_size=5, max_size=5))
def test_a_penalty_keeps_no_task_from_the_only_node_that_fits(asks, offers, penalties):
    for offer, points in zip(offers, penalties, strict=False):
        alone = [msgspec.structs.replace(offer, penalty=points)]
        assert place(asks, alone) == place(asks, [offer])
