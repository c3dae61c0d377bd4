"""Queues: where tasks that are ready to run wait, in the order in which they are served."""

from enum import StrEnum


class Queue(StrEnum):
    """The queue of a waiting task, in the order in which the queues are served."""

    URGENT = "urgent"
    """Requested, or the delay tolerance is nearly used up."""
    PERIODIC = "periodic"
    """Occurrences of schedules."""
    DELAYABLE = "delayable"
    """All other tasks."""
    OFF_PEAK = "off_peak"
    """Waits for low load, as long as the delay tolerance allows."""


REQUESTABLE = (Queue.URGENT, Queue.OFF_PEAK)
"""The queues that a task may request; the others follow from the task itself."""
