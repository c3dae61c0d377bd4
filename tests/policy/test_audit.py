from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.drift import DriftKind, Finding
from duly.model.resources import Resources
from duly.model.usage import Amounts
from duly.policy.audit import (
    MEANINGS,
    TrackedFinding,
    books_disagree,
    classify_overuse,
    confirm_drift,
)

AFTER = timedelta(seconds=60)
ORPHAN = Finding(DriftKind.ORPHANED, 7, "12")


def rounds(*sightings, after=AFTER):
    """Judge rounds of (time, findings) one after the other; return the drift of each."""
    suspicions, drift = {}, []
    for at, findings in sightings:
        seen = [TrackedFinding(one, since=at, seen_at=at) for one in findings]
        judgement = confirm_drift(suspicions, seen, after=after)
        suspicions = judgement.tracked
        drift.append(judgement.drift)
    return drift


def test_what_is_seen_once_is_no_drift_whatever_the_time():
    assert rounds((1e9, [ORPHAN]), after=timedelta(0)) == [[]]


def test_what_stays_for_long_enough_is_drift_until_it_is_gone():
    found = rounds((0, [ORPHAN]), (59, [ORPHAN]), (60, [ORPHAN]), (75, [ORPHAN]), (90, []))
    assert found == [[], [], [ORPHAN], [ORPHAN], []]


def test_what_was_right_in_between_begins_anew():
    found = rounds((0, [ORPHAN]), (30, []), (60, [ORPHAN]), (119, [ORPHAN]), (120, [ORPHAN]))
    assert found == [[], [], [], [], [ORPHAN]]


def test_what_has_moved_on_meanwhile_is_another_thing():
    moved = Finding(DriftKind.ORPHANED, 7, "13")
    assert rounds((0, [ORPHAN]), (60, [moved]), (61, [moved])) == [[], [], []]


def test_the_same_task_in_another_way_is_another_thing():
    other = Finding(DriftKind.OVERRUNNING, 7, "12")
    assert rounds((0, [ORPHAN]), (60, [other])) == [[], []]


findings = st.builds(
    Finding, st.sampled_from(DriftKind), st.integers(0, 3), st.sampled_from(["", "a", "b"])
)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 100), st.lists(findings, unique_by=lambda one: (one.kind, one.about))
        )
    ),
    st.timedeltas(timedelta(0), timedelta(seconds=200)),
)
def test_drift_was_there_in_every_round_of_its_stretch(steps, after):
    at, history = 0.0, []
    for pause, seen in steps:
        at += pause
        history.append((at, seen))
    for number, drift in enumerate(rounds(*history, after=after)):
        for one in drift:
            last = history[number][0]
            stretch = [
                seen for when, seen in history[:number] if when > last - after.total_seconds()
            ]
            assert number > 0
            assert one in history[number - 1][1]
            assert all(one in seen for seen in stretch)


def test_a_node_is_overused_only_beyond_what_it_has():
    has = Resources(cpu_milli=2000, memory_mb=1024)
    assert classify_overuse(has, has, has) is None
    assert classify_overuse(has, has, Resources(cpu_milli=2001)) is DriftKind.OVERSUBSCRIBED
    assert classify_overuse(has, has, Resources(extra={"gpu": 1})) is DriftKind.OVERSUBSCRIBED
    # Kinds that a node does not declare do not count there.
    assert classify_overuse(has, has, Resources(iops=5)) is None


def test_too_much_after_an_override_is_another_kind_unless_it_was_too_much_anyway():
    has, told = Resources(cpu_milli=2000), Resources(cpu_milli=1000)
    assert classify_overuse(has, told, Resources(cpu_milli=1500)) is DriftKind.ABOVE_OVERRIDE
    assert classify_overuse(has, told, Resources(cpu_milli=2500)) is DriftKind.OVERSUBSCRIBED
    assert classify_overuse(told, has, Resources(cpu_milli=1500)) is None


def test_every_kind_has_a_meaning():
    assert MEANINGS.keys() == set(DriftKind)


ONE, TWO = Amounts(tasks=1, attempts=1), Amounts(tasks=1, attempts=2)


@pytest.mark.parametrize(
    ("booked", "counted", "all_there", "off"),
    [
        (ONE, ONE, True, False),
        (TWO, ONE, True, True),
        (ONE, TWO, True, True),
        (ONE, ONE, False, False),
        (TWO, ONE, False, False),
        (ONE, TWO, False, True),
    ],
)
def test_books_that_say_less_are_off_and_those_that_say_more_if_nothing_was_dropped(
    booked, counted, all_there, off
):
    assert books_disagree(booked, counted, all_there=all_there) is off
