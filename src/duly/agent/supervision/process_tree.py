"""Finds the processes of an attempt where there are no cgroups to hold them.

Processes are recognised by what they cannot easily shed: a user id of their own if the agent is
root; otherwise the session and the environment that they were started with, or descent from such a
process. The supervisor is the subreaper, so that orphans stay below it. Nothing can be frozen or
limited this way, and a task that is determined to hide can (by clearing its environment, leaving
its session and letting its parent die), as long as another attempt is running beside it.
"""

# The supervisor imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: PTH123, PTH208, SIM105

import os
import signal

from duly.agent.limits.cgroup import CgroupUsage

NOT_MEASURED = CgroupUsage(None, None, False)
MAX_ENVIRONMENT_BYTES = 512 * 1024
"""More than a task is ever given. A process can make its own appear as large as its memory."""


class ProcessTree:
    """The processes of the attempt whose first process has the pid `leader`."""

    def __init__(self, marker: str, uid: int | None) -> None:
        self.leader: int | None = None
        """None until it has begun. Never 0, the session of kernel threads and many others."""
        self._marker = marker.encode()
        self._uid = uid

    def is_empty(self) -> bool:
        """Return True if no process is left; zombies do not count."""
        return not self._pids()

    def signal(self, number: int) -> None:
        """Send a signal to every process that can be found at this moment."""
        for pid in self._pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """Kill every process that can be found; call again until the tree is empty."""
        self.signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Kill the processes: they cannot be frozen, and must not run on."""
        self.kill()

    def thaw(self) -> None:
        """Do nothing: the processes were never frozen."""

    def measure(self) -> CgroupUsage:
        """Return no usage: it is only known from the kernel's resource usage at exit."""
        return NOT_MEASURED

    def usage_so_far(self) -> tuple[float | None, int | None]:
        """Return no usage: it is not known while the attempt runs."""
        return None, None

    def _pids(self) -> list[int]:
        return self.members(living_processes())

    def members(self, processes: "dict[int, ProcessState]") -> list[int]:
        """Return the pids of `processes` that belong to the attempt, and of their descendants."""
        found = {pid for pid, state in processes.items() if self._is_ours(pid, state)}
        found.discard(os.getpid())
        return sorted(descendants(found, processes))

    def _is_ours(self, pid: int, state: "ProcessState") -> bool:
        if self._uid is not None:
            return read_uid(pid) == self._uid
        return state.session == self.leader or self._marker in read_environment(pid)


def kill_descendants(spared: set[int]) -> None:
    """Kill every descendant of this process but `spared`: a subreaper inherits all orphans."""
    for pid in descendants({os.getpid()}, living_processes()) - {os.getpid()} - spared:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def descendants(roots: set[int], processes: "dict[int, ProcessState]") -> set[int]:
    """Return `roots` and all of their descendants."""
    found = set(roots)
    while more := {pid for pid, state in processes.items() if state.parent in found} - found:
        found |= more
    return found


class NoProcesses:
    """The process tree of an attempt whose start was not sent to a spawner yet: always empty."""

    def is_empty(self) -> bool:
        """Return True."""
        return True

    def kill(self) -> None:
        """Do nothing: there are no processes."""

    freeze = thaw = kill

    def pids(self) -> list[int]:
        """Return an empty list."""
        return []

    def measure(self) -> CgroupUsage:
        """Return no usage."""
        return NOT_MEASURED

    def usage_so_far(self) -> tuple[float | None, int | None]:
        """Return no usage."""
        return None, None


class ProcessState:
    """The parent and the session of a living process, from /proc."""

    __slots__ = ("parent", "session")

    def __init__(self, parent: int, session: int) -> None:
        self.parent = parent
        self.session = session


def living_processes() -> dict[int, ProcessState]:
    """Return the state of every living process of this machine, by pid."""
    found = ((int(name), read_state(int(name))) for name in os.listdir("/proc") if name.isdigit())
    return {pid: state for pid, state in found if state is not None}


def read_state(pid: int) -> ProcessState | None:
    """Return the state of a process; None if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name is in parentheses and may itself contain any character.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return ProcessState(int(fields[1]), int(fields[3]))


def read_uid(pid: int) -> int | None:
    """Return the real user id of a process."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"Uid:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


def read_environment(pid: int) -> bytes:
    """Return the environment that a process was started with; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read(MAX_ENVIRONMENT_BYTES)
    except OSError:
        return b""
