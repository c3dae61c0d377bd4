"""A worker's options, and the worker as a child process of `duly up`.

Separate from `worker.py`, because importing the agent would cost the process of `duly up` 12 MB.
"""

import os
from collections.abc import Callable

import msgspec

from duly.launch.local.child_process import ChildProcess


class WorkerFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of a worker."""

    app: str
    urls: list[str]
    key: str | None = None
    ca_file: str | None = None
    data: str | None = None
    name: str | None = None
    labels: dict[str, str] = {}
    processes: int | None = None
    """None: half of the CPUs."""
    threads: int = 1
    concurrency: int = 1
    reload: bool = False
    max_tasks: int | None = None
    max_memory_mb: int | None = None
    verbose: bool = False


def default_processes() -> int:
    """Return how many processes a worker has by default: the other CPUs are for everything else."""
    return max(1, len(os.sched_getaffinity(0)) // 2)


def worker_part(
    *,
    app: str,
    url: str,
    key: str,
    data: str,
    verbose: bool,
    on_tasks_left: Callable[[int], None],
) -> ChildProcess:
    """Return the worker of `duly up`, in the current folder."""
    flags = WorkerFlags(app=app, urls=[url], key=key, data=data, verbose=verbose)
    return ChildProcess(
        "worker",
        "duly.launch.worker",
        lambda: flags,
        is_essential=True,
        on_tasks_left=on_tasks_left,
    )
