"""The supervisor's record of one attempt, and the exit event that the agent gets at its end."""

import signal
from typing import Any

from duly.agent.limits.cgroup import Cgroup
from duly.agent.supervision.output import Output
from duly.agent.supervision.process_tree import NoProcesses, ProcessTree
from duly.agent.supervision.spawner_handle import SpawnerHandle
from duly.clock import monotonic

MIN_RECHECK_SECONDS, MAX_RECHECK_SECONDS = 0.001, 0.1
"""Bounds of the backoff between two checks whether a killed process tree is empty."""


class SupervisedAttempt:
    """One attempt, its processes and its output."""

    __slots__ = (
        "capped", "code", "cpu", "disk_usage", "ended_at", "failure", "frozen_at", "id",
        "is_out_of_memory", "is_unknown", "is_workspace_empty", "kill_on_start", "never_begun",
        "output", "peak", "pid", "recheck_seconds", "sampled_peak", "spawner", "spec",
        "started_at", "stopped", "tree",
    )  # fmt: skip

    def __init__(
        self,
        spec: dict[str, Any],
        tree: ProcessTree | NoProcesses,
        output: Output,
        spawner: SpawnerHandle,
    ) -> None:
        self.id: int = spec["id"]
        self.spec = spec
        self.tree: Cgroup | ProcessTree | NoProcesses = tree
        """Where cgroups are used, replaced by one when the start is sent to the spawner."""
        self.output = output
        self.spawner = spawner
        self.pid = 0
        """0 until the spawner has reported the start."""
        self.started_at = monotonic()
        self.ended_at = 0.0
        self.code: int | None = None
        self.cpu: float | None = None
        self.peak: int | None = None
        """The peak memory of its largest process, if the spawner could tell."""
        self.sampled_peak = 0
        """The most memory in any sample, in bytes, where no cgroup accounts for it."""
        self.disk_usage: tuple[Any, ...] | None = None
        """The workspace's disk usage at the end, if it was measured (`disk_usage.py`)."""
        self.is_workspace_empty = False
        """The workspace was empty at the end, and was removed or reclaimed for the pool."""
        self.failure: tuple[str, int] | None = None
        self.is_out_of_memory = False
        """Ended because it used more memory than its limit."""
        self.is_unknown = False
        """It may have run, but its spawner died before it reported the start or the exit."""
        self.never_begun = False
        """Ended while it waited for a spawner; it has no processes."""
        self.stopped = False
        self.kill_on_start = False
        """Kill it as soon as the spawner reports the start."""
        self.capped = False
        self.frozen_at: float | None = None
        self.recheck_seconds = MIN_RECHECK_SECONDS


def describe(attempt: SupervisedAttempt) -> dict[str, Any]:
    """Return the body of the `exited` event for an attempt that has ended."""
    measured = attempt.tree.measure()
    cpu, peak = measured.cpu_seconds, measured.peak_memory
    if peak is None:
        peak = max(attempt.peak or 0, attempt.sampled_peak) or None
    inline, notice = attempt.output.inline, attempt.output.notice
    size = attempt.output.size + len(notice)
    out_of_memory = measured.out_of_memory or attempt.is_out_of_memory
    if out_of_memory and (attempt.is_unknown or attempt.failure):
        # Memory ran out during the start itself, while the spawner was still in the cgroup.
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
        "is_workspace_empty": attempt.is_workspace_empty,
    }
