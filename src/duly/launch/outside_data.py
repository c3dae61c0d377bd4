"""Describes what Duly keeps outside of its data folder, for `duly doctor`."""

import os
import shutil
from pathlib import Path

from duly.agent.preparation import workspace
from duly.agent.preparation.workspace import FALLBACK_ROOT


def describe(data: Path, config: Path) -> str:
    """Return one sentence about the `data` folder of a `duly up` or an agent, for this user."""
    settings = f"the client configuration, {config}"
    if os.geteuid() != 0:
        return f"nothing but {settings}"
    locks = "locks on user ids"
    if _holds_workspaces(data):
        return f"{settings}; {locks} in {FALLBACK_ROOT}"
    existing = FALLBACK_ROOT if FALLBACK_ROOT.is_dir() else FALLBACK_ROOT.parent
    free = shutil.disk_usage(existing).free
    return (
        f"{settings}; in {FALLBACK_ROOT} ({free / 2**30:.1f} GiB free) the working folders of "
        f"tasks, which run as other users and cannot enter {data}, their socket, and {locks}. The "
        "node offers what the smaller of both disks has"
    )


def _holds_workspaces(data: Path) -> bool:
    """Return True if tasks can reach their working folders in `data`."""
    agent = data if (data / "node.json").exists() else data / "agent"
    # `duly up` makes a folder for its agent that only root can enter.
    return agent.is_dir() and workspace.root(agent, "", shared=True).parent == agent
