"""Durations and times as people write them."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.duration import MAX_DURATION, format_duration, parse_duration, parse_time
from duly.errors import Invalid


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("90", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("2w", 1_209_600),
        ("PT5M", 300),
        ("pt1h", 3600),
        ("P1DT12H", 129_600),
        ("PT1.5S", 1.5),
        (" 5m ", 300),
    ],
)
def test_every_notation_of_a_duration_is_parsed(value, seconds):
    assert parse_duration(value, "cap").total_seconds() == seconds


NOT_DURATIONS = ["", "m", "5x", "5 m", "-5m", "P", "PT", "P1Y", "1e9", "5m!", "five", "9" * 100]
NOT_DURATIONS += ["\u0665m", -1, float("inf"), float("nan"), 1e300]


@pytest.mark.parametrize("value", NOT_DURATIONS)
def test_anything_else_is_refused_as_a_duration(value):
    with pytest.raises(Invalid) as refusal:
        parse_duration(value, "cap")
    assert refusal.value.field == "cap"


@given(st.integers(0, int(MAX_DURATION.total_seconds())))
def test_seconds_are_parsed_exactly(seconds):
    assert parse_duration(f"{seconds}s", "cap") == timedelta(seconds=seconds)
    assert parse_duration(f"PT{seconds}S", "cap") == timedelta(seconds=seconds)


@given(st.text(max_size=80))
def test_any_text_is_a_duration_or_refused(text):
    with suppress(Invalid):
        assert timedelta(0) <= parse_duration(text, "cap") <= MAX_DURATION


@given(st.text(max_size=80))
def test_any_text_is_a_time_or_refused(text):
    with suppress(Invalid):
        assert parse_time(text, "run_at").tzinfo is UTC


def test_a_time_is_converted_to_utc():
    assert parse_time("2027-01-31T06:30:00-05:00", "run_at") == datetime(
        2027, 1, 31, 11, 30, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (1.26, "1.3 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (90_061, "1 d 1 h"),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(seconds, text):
    assert format_duration(timedelta(seconds=seconds)) == text
