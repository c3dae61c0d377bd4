"""Adapts the polling interval to the progress, so that polling costs little."""

LOOK = 0.01
"""Seconds between two looks at the end; each costs PostgreSQL some microseconds."""
LONGEST = 0.25


def next_look(passed: float, ended: int, left: int) -> float:
    """Return the seconds until half of what is left should have ended, within bounds."""
    if ended <= 0:
        return LOOK
    return min(max(LOOK, passed * left / ended / 2), LONGEST)
