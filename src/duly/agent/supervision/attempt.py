"""What the supervisor knows of one attempt, and what it tells the agent at its end."""

import signal
from typing import Any

from duly.agent.cgroup import Group
from duly.agent.output import Output
from duly.agent.starter import Starter
from duly.agent.tree import Nowhere, Tree
from duly.clock import monotonic

FIRST_LOOK, LONGEST_LOOK = 0.001, 0.1
"""Seconds between two looks at a tree that has been killed."""


class Attempt:
    """One attempt and its processes."""

    __slots__ = (
        "capped", "code", "cpu", "disk_usage", "doomed", "ended_at", "failure", "frozen_at", "id",
        "is_bare", "is_out_of_memory", "is_unknown", "never_begun", "output", "pause", "peak",
        "pid", "sampled_peak", "spec", "started_at", "starter", "stopped", "tree",
    )  # fmt: skip

    def __init__(
        self, spec: dict[str, Any], tree: Tree | Nowhere, output: Output, starter: Starter
    ) -> None:
        self.id: int = spec["id"]
        self.spec = spec
        self.tree: Group | Tree | Nowhere = tree
        """Where there are groups, it gets one when its spawner is told of it."""
        self.output = output
        self.starter = starter
        self.pid = 0
        """0 until it is known to have begun."""
        self.started_at = monotonic()
        self.ended_at = 0.0
        self.code: int | None = None
        self.cpu: float | None = None
        self.peak: int | None = None
        self.sampled_peak = 0
        """The most memory that was seen, in bytes, where no cgroup counts it."""
        self.disk_usage: tuple[Any, ...] | None = None
        """What its folder held at its end, if that was measured (`duly.agent.disk_usage`)."""
        self.is_bare = False
        """Its folder was empty at its end, and is gone, or ours again."""
        self.failure: tuple[str, int] | None = None
        self.is_out_of_memory = False
        """It was ended because it used more memory than it was given."""
        self.is_unknown = False
        """It may have run, but its spawner died before it could tell how it began or ended."""
        self.never_begun = False
        """It was ended while it waited for a spawner, and has no processes."""
        self.stopped = False
        self.doomed = False
        """It is to be killed as soon as it is known to have begun."""
        self.capped = False
        self.frozen_at: float | None = None
        self.pause = FIRST_LOOK


def describe(attempt: Attempt) -> dict[str, Any]:
    """Return what the agent is told of an attempt that has ended."""
    measured = attempt.tree.measure()
    cpu, peak = measured.cpu_seconds, measured.peak_memory
    if peak is None:
        peak = max(attempt.peak or 0, attempt.sampled_peak)
    inline, notice = attempt.output.inline, attempt.output.notice
    size = attempt.output.size + len(notice)
    out_of_memory = measured.out_of_memory or attempt.is_out_of_memory
    if out_of_memory and (attempt.is_unknown or attempt.failure):
        # There was not even room for the start, and the spawner was in the group, too.
        attempt.is_unknown, attempt.failure, attempt.code = False, None, -signal.SIGKILL
    return {
        "id": attempt.id,
        "code": attempt.code,
        "stopped": attempt.stopped,
        "capped": attempt.capped,
        "out_of_memory": out_of_memory,
        "failure": attempt.failure,
        "is_unknown": attempt.is_unknown,
        "never_begun": attempt.never_begun,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "cpu_seconds": attempt.cpu if cpu is None else cpu,
        "peak_memory": peak,
        "disk_usage": attempt.disk_usage,
        "log_size": size if inline is None else len(inline),
        "log": inline,
        "log_notice": notice,
        "is_bare": attempt.is_bare,
    }
