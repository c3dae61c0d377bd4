"""Adapts the polling interval to the progress, so that polling costs little."""

MIN_INTERVAL_SECONDS = 0.01
"""Each poll costs PostgreSQL some microseconds."""
MAX_INTERVAL_SECONDS = 0.25


def next_interval(elapsed: float, ended: int, remaining: int) -> float:
    """Return the seconds until half of the remaining tasks should have ended, within bounds."""
    if ended <= 0:
        return MIN_INTERVAL_SECONDS
    estimate = elapsed * remaining / ended
    return min(max(MIN_INTERVAL_SECONDS, estimate / 2), MAX_INTERVAL_SECONDS)
