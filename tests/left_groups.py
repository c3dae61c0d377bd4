"""Removes the cgroups of agents that were killed together with their supervisors.

An agent sweeps those of its own folder only, when it comes back; those of a test never do. And
no other agent can do it for them: a group that is empty may be that of one that idles.
"""

from collections.abc import Iterable
from pathlib import Path

from duly.agent import identity
from duly.agent.limits import cgroup_hierarchies


def remove(folders: Iterable[Path]) -> None:
    """Kill and remove whatever agents with these data folders have left; they are gone."""
    for data in folders:
        if data.is_dir():
            cgroup_hierarchies.sweep(identity.instance_name(data))
