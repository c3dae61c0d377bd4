"""Hints stay small, and cover too much rather than too little."""

from hypothesis import given
from hypothesis import strategies as st

from duly.server.cluster.hints import EVERYTHING, MAX_NAMED_IDS, Hint, decode, encode

NOTIFY_LIMIT_BYTES = 8000
"""PostgreSQL refuses payloads of this size and above."""
ids = st.frozensets(st.integers(0, 2**63 - 1), max_size=2 * MAX_NAMED_IDS)
subqueues = st.frozensets(st.tuples(*[st.integers(0, 2**63 - 1)] * 2), max_size=2 * MAX_NAMED_IDS)
hints = st.builds(
    Hint, work=st.booleans(), due=st.booleans(), subqueues=subqueues, incarnations=ids, tasks=ids
)


def covers(hinted, changed):
    """Return True if a receiver of `hinted` checks everything that has `changed`."""
    return hinted is None or hinted >= changed


@given(hints, hints)
def test_merged_hints_cover_both(first, second):
    merged = decode(encode(first | second))
    assert merged.work == (first.work or second.work)
    assert merged.due == (first.due or second.due)
    assert covers(merged.subqueues, first.subqueues | second.subqueues)
    assert covers(merged.incarnations, first.incarnations | second.incarnations)
    assert covers(merged.tasks, first.tasks | second.tasks)


def test_the_longest_hint_fits_into_a_notify():
    many = frozenset(2**63 - 1 - number for number in range(MAX_NAMED_IDS))
    full = Hint(
        work=True,
        due=True,
        incarnations=many,
        tasks=many,
        subqueues=frozenset((number, number) for number in many),
    )
    assert len(encode(Hint() | full)) < NOTIFY_LIMIT_BYTES
    assert Hint() | full == full


def test_subqueues_are_called_pairs_in_the_message():
    assert encode(Hint(subqueues=frozenset({(1, 2)}))) == '{"pairs":[[1,2]]}'


def test_a_message_that_cannot_be_decoded_may_mean_anything():
    assert decode("{") == decode('{"tasks": 7}') == EVERYTHING


def test_fields_of_a_newer_server_are_ignored():
    assert decode('{"work":true,"weather":"fine"}') == Hint(work=True)
