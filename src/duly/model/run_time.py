"""What is known about the run times of tasks with one name."""

from datetime import timedelta

import msgspec


class RunTime(msgspec.Struct, frozen=True):
    """What is known about the run times of one name."""

    samples: int
    log_mean: float
    """The average of the natural logarithm of seconds."""
    log_deviation: float
    """The average distance from it."""


class RunTimeEstimate(msgspec.Struct, frozen=True):
    """How long a task is expected to run, as far as anything is known."""

    expected: timedelta | None = None
    bound: timedelta | None = None
    """Within which it very likely ends; None until there are enough samples."""


NO_ESTIMATE = RunTimeEstimate()
