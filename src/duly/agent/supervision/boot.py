"""How the supervisor's process comes to be.

Two programs in a row: the first (`prepare`) makes three settings for which it needs a
large library; they survive the exec of the second (`main`), and the library does
not. What is set here holds for every task that is ever started.
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

from duly.agent.cgroup import Layout

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NICENESS = -10
"""So that tasks cannot starve us; they themselves run at 0."""
SELDOM = (10_000, 20, 50)
"""How seldom the collector looks: what attempts leave has no cycles. It took 4 % of our time."""


def prepare() -> None:
    """Become the reaper of all that tasks leave, give up new privileges for good, and go on.

    Ambient capabilities are those that exec leaves to whoever is not root, so to every task.
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
    """Run the supervisor as the last argument says: a JSON object made by `duly.agent.link`."""
    from duly.agent.supervisor import Supervisor

    config = json.loads(sys.argv[-1])
    os.set_inheritable(config["link"], False)
    # For tasks, which inherit it. All that is made here itself is groups, which tasks may read, and
    # what has a mode of its own.
    os.umask(0o022)
    os.chdir("/")
    # Whoever stops the whole service signals us, too; but we go when the agent does.
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    open_files = _limit(config["processes"], config["own_uids"])
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    except PermissionError:
        pass
    lock = os.open(config["lock"], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    gc.freeze()
    gc.set_threshold(*SELDOM)
    layout = Layout(*config["layout"])
    Supervisor(config["link"], layout, config["processes"], open_files, lock).run()


def _limit(processes: int, own_uids: bool) -> tuple[int, int]:
    """Set the limits that tasks inherit; return those on open files that they should have."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if own_uids:
        # Per user id; root itself, as which we run, is not bound by it.
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard
