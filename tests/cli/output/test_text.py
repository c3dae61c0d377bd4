import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.cli.output.text import (
    clean,
    clean_json,
    format_age,
    format_coarse_duration,
    format_moment,
    format_percent,
    format_span,
    localise_times,
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
        (timedelta(seconds=45), "45 s ago"),
        (timedelta(minutes=3), "3 min ago"),
        (timedelta(hours=30), "30 h ago"),
        (timedelta(hours=-2), "in 2 h"),
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
    assert 2 <= len(format_coarse_duration(duration)) <= 7


def test_a_clock_that_is_behind_makes_no_negative_time():
    assert format_span("2027-01-31T12:00:01Z", "2027-01-31T12:00:00Z") == "0.0 s"
    assert format_span(None, "2027-01-31T12:00:00Z") == ""


@pytest.fixture
def in_berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_moment_is_told_in_local_time_with_its_date_unless_it_is_today(in_berlin):
    assert format_moment("2027-01-31T12:59:58.500Z", NOW) == "13:59:58 (in 60 min)"
    assert format_moment(NOW - timedelta(hours=20), NOW) == "2027-01-30 17:00:00 (20 h ago)"


def test_the_times_in_a_message_of_a_server_are_told_in_local_time(in_berlin):
    message = "Scheduled to start at 2027-01-31T13:00:00Z."
    assert localise_times(message, NOW) == "Scheduled to start at 14:00:00 (in 60 min)."
    assert localise_times("Exited with code 1.", NOW) == "Exited with code 1."
