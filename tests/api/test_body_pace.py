"""The slowest body that is waited for."""

from duly import clock
from duly.api.body import MAX_BODY_SECONDS, MIN_BODY_RATE
from duly.api.body_pace import FIRST_BYTE_SECONDS, WINDOW, BodyPace
from duly.config import RequestSettings

BATCH = RequestSettings().batch_limit


def seconds_until_given_up(pace: BodyPace, rate: int) -> int | None:
    """Send a batch at `rate` bytes a second; return when it is given up, None if it is not."""
    start = clock.monotonic()
    for second in range(-(-BATCH // rate)):
        if pace.patience(start + second) <= 0:
            return second
        pace.count(rate, 1.0)
    return None


def test_the_largest_batch_comes_through_a_poor_line() -> None:
    assert seconds_until_given_up(BodyPace(MIN_BODY_RATE, MAX_BODY_SECONDS), 16 * 1024) is None


def test_a_fast_beginning_buys_no_time() -> None:
    pace = BodyPace(MIN_BODY_RATE, MAX_BODY_SECONDS)
    pace.count(BATCH - 1000, 1.0)
    assert seconds_until_given_up(pace, 1) == WINDOW


def test_a_body_ends_in_time_however_steadily_it_comes() -> None:
    pace = BodyPace(MIN_BODY_RATE, MAX_BODY_SECONDS)
    assert seconds_until_given_up(pace, 10 * 1024) == MAX_BODY_SECONDS


def test_a_small_body_has_less_time_to_begin_than_to_go_on() -> None:
    pace, now = BodyPace(MIN_BODY_RATE, MAX_BODY_SECONDS, 10), clock.monotonic()
    assert pace.patience(now) == FIRST_BYTE_SECONDS
    pace.count(1, 4.0)
    assert pace.patience(now) == WINDOW
