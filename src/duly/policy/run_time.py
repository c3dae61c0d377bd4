"""Estimates how long the tasks of one name run, from the attempts that have ended.

Run times of one name differ by factors, so mean and deviation are those of their logarithms: the
expected run time is the median, and the bound lies well above most run times. Both are moving
averages. A change within reach of the deviation counts fully, one beyond it only as far as that
reach: one outlier hardly moves the estimate. A lasting shift widens the deviation with every
sample, and so its own reach: it is followed within some tens of samples.
"""

import math
from datetime import timedelta

from duly.model.run_time import RunTime, RunTimeEstimate

MIN_RATE = 0.1
"""The weight of a new sample, once there are enough; before that, all count the same."""
REACH_DEVIATIONS = 3.0
MIN_REACH = 0.5
"""A sample may always move the average by this much times its weight: by half, before that."""
BOUND_DEVIATIONS = 4.5
"""Both averages are those of some ten samples, and may be a third too low: even then, 19 of 20 runs
end within the bound, if logarithms are normally distributed."""
MIN_SAMPLES_FOR_BOUND = 20
MIN_SECONDS = 0.001
MAX_SECONDS = 1e9


def observe(known: RunTime | None, seconds: float) -> RunTime:
    """Return what is known after another attempt ran for `seconds`."""
    sample = math.log(min(max(seconds, MIN_SECONDS), MAX_SECONDS))
    if known is None:
        return RunTime(1, sample, 0.0)
    rate = max(MIN_RATE, 1 / (known.samples + 1))
    reach = max(MIN_REACH, REACH_DEVIATIONS * known.log_deviation)
    change = min(max(sample - known.log_mean, -reach), reach)
    return RunTime(
        known.samples + 1,
        known.log_mean + rate * change,
        known.log_deviation + rate * (abs(change) - known.log_deviation),
    )


def estimate(known: RunTime) -> RunTimeEstimate:
    """Return the estimate of the next run time.

    The bound is rounded up to a power of two, in seconds: placement handles tasks with equal bounds
    together, and need not know it any better.
    """
    expected = timedelta(seconds=round(math.exp(known.log_mean), 3))
    if known.samples < MIN_SAMPLES_FOR_BOUND:
        return RunTimeEstimate(expected)
    log_bound = known.log_mean + BOUND_DEVIATIONS * known.log_deviation
    power = math.ceil(min(log_bound, math.log(MAX_SECONDS)) / math.log(2))
    return RunTimeEstimate(expected, timedelta(seconds=2.0 ** max(power, 0)))
