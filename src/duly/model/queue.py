"""Queues: where tasks that are ready to run wait, in the order in which they are served."""

from enum import StrEnum


class Queue(StrEnum):
    """Which of the tasks that wait go before which others."""

    URGENT = "urgent"
    """Asked for, or the delay tolerance is nearly used up."""
    PERIODIC = "periodic"
    """What a schedule has produced."""
    DELAYABLE = "delayable"
    """Everything else."""
    OFF_PEAK = "off_peak"
    """Waits until there is little to do, if its delay tolerance lets it."""


ASKABLE = (Queue.URGENT, Queue.OFF_PEAK)
"""What a task may ask for; the others follow from what it is."""
