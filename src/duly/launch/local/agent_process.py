"""The agent as a child process of `duly up`: its options and how it is started.

Separate from `agent.py`, because importing the agent would cost the process of `duly up` 12 MB.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from duly.errors import ConfigError
from duly.launch.local.child_process import ChildProcess

ISOLATIONS = ("process",)
UP_PORTS = (20_000, 20_999)
"""The ports that `duly up` assigns to tasks: below the kernel's ephemeral range."""


class AgentFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of an agent; an amount of None means all that the machine has."""

    url: str
    data: str
    join_token_file: str | None = None
    ca_file: str | None = None
    name: str | None = None
    isolation: str = "process"
    tasks_as: str | None = None
    cpu: float | None = None
    memory_mb: int | None = None
    disk_mb: int | None = None
    iops: int = 0
    bandwidth_mbps: int = 0
    port_range: tuple[int, int] | None = None
    cpu_quota: bool = False
    extra: dict[str, int] = {}
    labels: dict[str, str] = {}
    verbose: bool = False


def check_isolation(name: str) -> None:
    """Raise ConfigError for a level of isolation that this version does not support."""
    if name not in ISOLATIONS:
        raise ConfigError(f"--isolation: {name!r} is unknown. Use --isolation process.")


def agent_part(
    *,
    url: str,
    data: Path,
    join_token_file: Path,
    isolation: str,
    verbose: bool,
    reserved_cpus: int = 0,
    on_tasks_left: Callable[[int], None],
) -> ChildProcess:
    """Return the agent of `duly up`, which offers this machine's resources.

    All of them, but for the `reserved_cpus` of a worker beside it; one CPU is always offered.
    While it stops, `on_tasks_left` is called with the number of tasks that have not ended.
    """
    flags = AgentFlags(
        url=url,
        data=str(data),
        join_token_file=str(join_token_file),
        isolation=isolation,
        port_range=UP_PORTS,
        verbose=verbose,
        cpu=max(1, len(os.sched_getaffinity(0)) - reserved_cpus) if reserved_cpus else None,
    )
    return ChildProcess(
        "agent",
        "duly.launch.agent",
        lambda: flags,
        is_essential=True,
        on_tasks_left=on_tasks_left,
    )
