"""The minimum rate and the maximum duration of a request body."""

from duly import clock
from duly.api.limits.slow_bodies import FIRST_BYTE_SECONDS, RATE_WINDOW_SECONDS, BodyTimeout
from duly.api.requests.body import MAX_BODY_SECONDS, MIN_BODY_RATE
from duly.config import RequestSettings

MAX_BATCH_BYTES = RequestSettings().batch_limit


def seconds_until_timeout(timeout: BodyTimeout, rate: int) -> int | None:
    """Send a batch at `rate` bytes per second; return when it times out, None if it does not."""
    start = clock.monotonic()
    for second in range(-(-MAX_BATCH_BYTES // rate)):
        if timeout.seconds_left(start + second) <= 0:
            return second
        timeout.record(rate, 1.0)
    return None


def test_the_largest_batch_arrives_over_a_slow_connection() -> None:
    assert seconds_until_timeout(BodyTimeout(MIN_BODY_RATE, MAX_BODY_SECONDS), 16 * 1024) is None


def test_a_fast_start_does_not_allow_a_slow_rest() -> None:
    timeout = BodyTimeout(MIN_BODY_RATE, MAX_BODY_SECONDS)
    timeout.record(MAX_BATCH_BYTES - 1000, 1.0)
    assert seconds_until_timeout(timeout, 1) == RATE_WINDOW_SECONDS


def test_a_body_times_out_after_the_maximum_duration_however_steady_it_is() -> None:
    timeout = BodyTimeout(MIN_BODY_RATE, MAX_BODY_SECONDS)
    assert seconds_until_timeout(timeout, 10 * 1024) == MAX_BODY_SECONDS


def test_a_small_body_has_less_time_for_its_first_byte_than_for_the_rest() -> None:
    timeout, now = BodyTimeout(MIN_BODY_RATE, MAX_BODY_SECONDS, 10), clock.monotonic()
    assert timeout.seconds_left(now) == FIRST_BYTE_SECONDS
    timeout.record(1, 4.0)
    assert timeout.seconds_left(now) == RATE_WINDOW_SECONDS
