"""What servers tell each other stays small, and means too much rather than too little."""

from hypothesis import given
from hypothesis import strategies as st

from duly.server.news import EVERYTHING, MOST, News, read, write

LONGEST = 8000
"""Bytes that PostgreSQL refuses to carry."""
ids = st.frozensets(st.integers(0, 2**63 - 1), max_size=2 * MOST)
pairs = st.frozensets(st.tuples(*[st.integers(0, 2**63 - 1)] * 2), max_size=2 * MOST)
news = st.builds(
    News, work=st.booleans(), due=st.booleans(), pairs=pairs, incarnations=ids, tasks=ids
)


def covers(told, happened):
    """Say whether whoever hears `told` looks at all that has `happened`."""
    return told is None or told >= happened


@given(news, news)
def test_what_is_told_together_covers_both(one, other):
    told = read(write(one | other))
    assert told.work == (one.work or other.work)
    assert told.due == (one.due or other.due)
    assert covers(told.pairs, one.pairs | other.pairs)
    assert covers(told.incarnations, one.incarnations | other.incarnations)
    assert covers(told.tasks, one.tasks | other.tasks)


def test_the_longest_message_can_be_carried():
    many = frozenset(2**63 - 1 - number for number in range(MOST))
    full = News(
        work=True,
        due=True,
        incarnations=many,
        tasks=many,
        pairs=frozenset((number, number) for number in many),
    )
    assert len(write(News() | full)) < LONGEST
    assert News() | full == full


def test_what_cannot_be_understood_may_mean_anything():
    assert read("{") == read('{"tasks": 7}') == EVERYTHING


def test_what_a_newer_server_says_is_understood_as_far_as_it_goes():
    assert read('{"work":true,"weather":"fine"}') == News(work=True)
