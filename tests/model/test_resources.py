"""Resources as a vector."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.resources import KINDS, NO_RESOURCES, Resources, format_amount

amounts = st.integers(0, 10**9)
vectors = st.builds(
    lambda values, extra: Resources(**dict(zip(KINDS, values, strict=True)), extra=extra),
    st.lists(amounts, min_size=len(KINDS), max_size=len(KINDS)),
    st.dictionaries(st.sampled_from(["gpu", "licence"]), amounts),
)


def amounts_of(resources):
    return {kind: amount for kind, amount in resources.items() if amount}


@given(vectors, vectors)
def test_what_is_added_can_be_taken_away(vector, other):
    assert amounts_of(vector.plus(other).plus(other, -1)) == amounts_of(vector)


@given(vectors, vectors, st.integers(0, 50))
def test_many_at_once_are_many_one_by_one(vector, other, times):
    stepwise = vector
    for _ in range(times):
        stepwise = stepwise.plus(other)
    assert amounts_of(vector.plus(other, times)) == amounts_of(stepwise)


@given(vectors)
def test_everything_fits_into_itself_and_nothing_fits_everywhere(vector):
    assert vector.shortage(vector) == {}
    assert vector.shortage(NO_RESOURCES) == {}


@given(vectors, vectors)
def test_what_fits_leaves_nothing_below_zero(free, needs):
    counted = {kind for kind, amount in free.items() if amount} | {"cpu_milli", "memory_mb"}
    if free.shortage(needs) == {}:
        left = free.plus(needs, -1)
        assert all(amount >= 0 for kind, amount in left.items() if kind in counted)


@given(vectors)
def test_a_whole_node_is_a_share_of_one(vector):
    assert vector.share_of(vector) == (1.0 if any(amounts_of(vector)) else 0.0)


@pytest.mark.parametrize(
    ("kind", "amount", "words"),
    [
        ("cpu_milli", 500, "0.5 CPU"),
        ("memory_mb", 256, "256 MiB of memory"),
        ("disk_mb", 1, "1 MiB of disk"),
        ("bandwidth_mbps", 10, "10 Mbit/s of bandwidth"),
        ("gpu", 2, "2 gpu"),
    ],
)
def test_amounts_are_said_as_a_person_would(kind, amount, words):
    assert format_amount(kind, amount) == words
