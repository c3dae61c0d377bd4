"""How a node enforces each kind of limit, as reported to the servers when it joins.

`cgroup` and `user` mean that the kernel enforces the limit, `sampled` that the agent measures about
once a second and ends attempts over the limit. `weight` is a share of contended CPUs, `quota` a
share that is never exceeded, and `none` means that this node cannot enforce the limit.
"""

from duly.agent.limits.cgroup import Layout
from duly.agent.preparation.task_users import Users


def enforcement(layout: Layout, users: Users, *, cpu_quota: bool) -> dict[str, str]:
    """Return how each kind of limit is enforced."""
    limits_processes = layout.pids is not None or "pids" in layout.controllers
    return {
        "memory": "cgroup" if layout.limits_memory else "sampled",
        "disk": "sampled",
        "cpu": ("quota" if cpu_quota else "weight") if layout.shares_cpu else "none",
        "processes": "cgroup" if limits_processes else "user" if users.own_uids else "none",
    }
