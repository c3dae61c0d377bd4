import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.cli.output.text import (
    clean,
    clean_json,
    format_age,
    format_coarse_duration,
    format_percent,
    format_span,
)

NOW = datetime(2027, 1, 31, 12, 0, tzinfo=UTC)
OBEYED = [*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), "\u202e", "\u2066", "\u200f"]


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text):
    assert not set(clean(text)) & set(OBEYED)
    clean(text).encode()


@pytest.mark.parametrize("text", ["Größe", "写真 📷", "a b", "[red]x[/red]", "日本語"])
def test_words_of_any_language_are_left_alone(text):
    assert clean(text) == text


@given(st.recursive(st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_json_means_the_same_and_nothing_in_it_is_obeyed(value):
    text = clean_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert not set(text) & set(OBEYED)


@pytest.mark.parametrize(
    ("past", "said"),
    [
        (timedelta(0), "now"),
        (timedelta(seconds=45), "45s ago"),
        (timedelta(minutes=3), "3m ago"),
        (timedelta(hours=30), "1d ago"),
        (timedelta(hours=-2), "in 2h"),
    ],
)
def test_ages_are_said_as_people_say_them(past, said):
    assert format_age((NOW - past).isoformat(), NOW) == said


@pytest.mark.parametrize(
    ("fraction", "said"),
    [
        (None, ""),
        (0, "0 %"),
        (0.0004, "0.0 %"),
        (0.0333, "3.3 %"),
        (0.0996, "10 %"),
        (1 / 3, "33 %"),
        (1.0, "100 %"),
    ],
)
def test_small_percentages_have_a_decimal_place(fraction, said):
    assert format_percent(fraction) == said


@given(st.timedeltas(timedelta(0), timedelta(days=36_500)))
def test_every_age_can_be_said_in_a_few_letters(duration):
    assert 2 <= len(format_coarse_duration(duration)) <= 6


def test_a_clock_that_is_behind_makes_no_negative_time():
    assert format_span("2027-01-31T12:00:01Z", "2027-01-31T12:00:00Z") == "0.0s"
    assert format_span(None, "2027-01-31T12:00:00Z") == ""
