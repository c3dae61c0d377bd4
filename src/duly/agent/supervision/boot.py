"""Starts the supervisor process.

Two programs in a row: the first (`prepare`) makes three process settings for which it needs a large
library (ctypes); they survive the exec of the second (`main`), and the library does not. The
settings are inherited by every task.
"""

# The supervisor imports no more than it must, so contextlib stays out.
# ruff: noqa: SIM105

import fcntl
import gc
import json
import os
import resource
import signal
import sys

from duly.agent.limits.cgroup import Layout

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
BLOCKED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NICENESS = -10
"""So that tasks, which run at 0, cannot starve the supervisor."""
GC_THRESHOLDS = (10_000, 20, 50)
"""Collect rarely: the garbage of attempts has no cycles, and collecting took 4 % of the time."""


def prepare() -> None:
    """Become the subreaper, give up new and ambient privileges for good, and exec `main`.

    Ambient capabilities are those that survive exec without root, so every task would have them.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in (
        (PR_SET_CHILD_SUBREAPER, 1),
        (PR_SET_NO_NEW_PRIVS, 1),
        (PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL),
    ):
        if libc.prctl(option, value, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
    arguments = [*sys.orig_argv[:-2], "main", sys.orig_argv[-1]]
    os.execv(sys.executable, arguments)  # noqa: S606


def main() -> None:
    """Run the supervisor with the last argument, a JSON object from `supervisor_link.py`."""
    from duly.agent.supervision.supervisor import Supervisor

    config = json.loads(sys.argv[-1])
    os.set_inheritable(config["link"], False)
    # For tasks, which inherit it. The supervisor itself creates only cgroups, which tasks may read,
    # and files with an explicit mode.
    os.umask(0o022)
    os.chdir("/")
    # Stopping the whole service signals the supervisor, too, but it exits when the agent does.
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
    open_files = _set_limits(config["processes"], config["own_uids"])
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    except PermissionError:
        pass
    lock = os.open(config["lock"], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    layout = Layout(*config["layout"])
    Supervisor(config["link"], layout, config["processes"], open_files, lock).run()


def _set_limits(processes: int, own_uids: bool) -> tuple[int, int]:
    """Set the limits that tasks inherit; return the open files limits that tasks should have."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if own_uids:
        # Per user id; root, as which the supervisor runs, is exempt.
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard
