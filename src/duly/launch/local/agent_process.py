"""The agent as a part of `duly up`: what it is told, and how it is started.

Apart from the agent itself, because `duly up` needs only this: the agent and what it
imports would cost the server's process 12 MB.
"""

from pathlib import Path

import msgspec

from duly.errors import ConfigError
from duly.launch.part import Part

ISOLATIONS = ("process",)
UP_PORTS = (20_000, 20_999)
"""Ports that `duly up` gives to tasks: below those that the kernel hands out by itself."""


class AgentFlags(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent was told; of what it has, None means what the machine has."""

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
    """Raise ConfigError for a level of isolation that this version cannot give."""
    if name not in ISOLATIONS:
        raise ConfigError(
            f"There is no isolation {name!r} in this version of Duly; use --isolation process."
        )


def agent_part(
    *, url: str, data: Path, join_token_file: Path, isolation: str, verbose: bool
) -> Part:
    """Return the agent of `duly up`, which offers all that this machine has."""
    flags = AgentFlags(
        url=url,
        data=str(data),
        join_token_file=str(join_token_file),
        isolation=isolation,
        port_range=UP_PORTS,
        verbose=verbose,
    )
    return Part("agent", "duly.launch.agent", lambda: flags, is_essential=True)
