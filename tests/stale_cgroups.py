"""Removes the cgroups of agents that were killed together with their supervisors.

An agent sweeps only the cgroups of its own data folder, when it starts again, and the agents of
tests never do. No other agent can sweep them: an empty cgroup may belong to an idle agent.
"""

from collections.abc import Iterable
from pathlib import Path

from duly.agent import identity
from duly.agent.limits import cgroup_hierarchies


def remove(folders: Iterable[Path]) -> None:
    """Kill and remove the cgroups of ended agents with these data folders."""
    for data in folders:
        if data.is_dir():
            cgroup_hierarchies.sweep(identity.instance_name(data))
