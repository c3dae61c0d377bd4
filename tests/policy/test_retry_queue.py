"""In which queue a failed task is tried again."""

from datetime import UTC, datetime, time

import pytest

from duly.model.queues.queue import OpeningHours, QueueDefinition, QueueDefinitions
from duly.policy.retry_queue import queue_of_retry

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
PAUSED = {"paused_at": NOW, "paused_by": "x"}
NIGHT = {"hours": OpeningHours(time(22), time(6))}


def queue(name, level, **others):
    return QueueDefinition(name=name, level=level, **others)


def after(name, *queues, allowed=None):
    return queue_of_retry(name, QueueDefinitions(queues), allowed, NOW)


@pytest.mark.parametrize(
    ("before", "retried"),
    [(None, "periodic"), ("periodic", "urgent"), ("urgent", "urgent"), ("off_peak", "off_peak")],
)
def test_a_retry_goes_to_the_next_higher_level_and_off_peak_stays(before, retried):
    assert after(before) == retried


def test_urgent_and_the_queues_of_administrators_need_the_leave_of_the_plan():
    fast = queue("fast", 10)
    assert after("periodic", allowed=()) == "periodic"
    assert after("periodic", allowed=("off_peak",)) == "periodic"
    assert after("periodic", fast, allowed=("urgent",)) == "urgent"
    assert after("periodic", fast, allowed=("fast",)) == "fast"
    assert after(None, allowed=()) == "periodic"


def test_levels_count_and_a_built_in_queue_goes_first_among_equals():
    slow, same, night = queue("slow", 60), queue("a", 30), queue("b", 50, off_peak=True)
    assert after("slow", slow, same, night) is None
    assert after("slow", slow, queue("mid", 45)) == "mid"
    assert after("b", slow, night) == "b"


@pytest.mark.parametrize("bound", [PAUSED, NIGHT])
def test_no_retry_goes_to_a_queue_that_starts_nothing(bound):
    assert after("slow", queue("slow", 60), queue("mid", 45, **bound)) is None


@pytest.mark.parametrize("bound", [PAUSED, NIGHT, {"max_share": 0.5}])
def test_no_task_escapes_the_bounds_of_its_queue_by_failing(bound):
    assert after("slow", queue("slow", 60, **bound)) == "slow"


def test_a_task_whose_queue_was_removed_is_retried_like_a_delayable_one():
    assert after("gone") == "periodic"
