"""Classes of tasks by run time, for workloads that know no other."""

RUN_TIME_CLASSES = {"short": 60.0, "medium": 3600.0, "long": float("inf")}
"""The run time below which a task is in a class, in seconds."""


def class_of(run_time: float) -> int:
    """Return the number of the class of a task that runs for so many seconds."""
    return next(i for i, most in enumerate(RUN_TIME_CLASSES.values()) if run_time < most)
