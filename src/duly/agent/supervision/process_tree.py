"""The processes of an attempt where there are no cgroups to hold them.

They are found by what they cannot easily shed: a user id of their own when the
agent is root; else the session they were started in, the environment they were
started with, and being a child of one of those. The supervisor is the subreaper,
so that a child whose parent has died is still below it.

Nothing can be frozen or limited this way, and a task that is bent on hiding from
us can (it clears its environment, leaves its session and lets its parent die), as
long as another attempt is running beside it.
"""

# The supervisor imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: PTH123, PTH208, SIM105

import os
import signal

from duly.agent.cgroup import Measured

NOTHING = Measured(None, None, False)
MAX_ENVIRONMENT_BYTES = 512 * 1024
"""More than a task is ever given. A process can make its own look as large as all of its memory."""


class Tree:
    """All processes that descend from the one with the id `leader`."""

    def __init__(self, marker: str, uid: int | None) -> None:
        self.leader: int | None = None
        """None until it has begun. Never 0: that is the session of the kernel, and of much else."""
        self._marker = marker.encode()
        self._uid = uid

    def is_empty(self) -> bool:
        """Tell whether no process is left of it; those that await their reaping do not count."""
        return not self._pids()

    def signal(self, number: int) -> None:
        """Send a signal to every process that can be found at this moment."""
        for pid in self._pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """Kill every process that can be found; call it again until it is empty."""
        self.signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Kill it: what cannot be frozen must not run on."""
        self.kill()

    def thaw(self) -> None:
        """Do nothing: it was never frozen."""

    def measure(self) -> Measured:
        """Say that nothing is known; what the kernel tells at the end has to do."""
        return NOTHING

    def used(self) -> tuple[float | None, int | None]:
        """Say that nothing is known while it runs."""
        return None, None

    def _pids(self) -> list[int]:
        return self.members(living_processes())

    def members(self, processes: "dict[int, State]") -> list[int]:
        """Return those of `processes` that belong to the attempt, with all their descendants."""
        found = {pid for pid, state in processes.items() if self._is_ours(pid, state)}
        found.discard(os.getpid())
        return sorted(descendants(found, processes))

    def _is_ours(self, pid: int, state: "State") -> bool:
        if self._uid is not None:
            return read_uid(pid) == self._uid
        return state.session == self.leader or self._marker in read_environment(pid)


def kill_descendants(spared: set[int]) -> None:
    """Kill every process below this one but `spared`: a subreaper keeps what its children leave."""
    for pid in descendants({os.getpid()}, living_processes()) - {os.getpid()} - spared:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def descendants(roots: set[int], processes: "dict[int, State]") -> set[int]:
    """Return `roots` and every process that comes from one of them."""
    found = set(roots)
    while more := {pid for pid, state in processes.items() if state.parent in found} - found:
        found |= more
    return found


class Nowhere:
    """The tree of an attempt that no spawner has been handed yet: there is nothing of it."""

    def is_empty(self) -> bool:
        """Say so."""
        return True

    def kill(self) -> None:
        """Do nothing, as all the rest here."""

    freeze = thaw = kill

    def pids(self) -> list[int]:
        """Return none."""
        return []

    def measure(self) -> Measured:
        """Say that nothing was used."""
        return NOTHING

    def used(self) -> tuple[float | None, int | None]:
        """Say that nothing is known."""
        return None, None


class State:
    """What /proc tells of a living process."""

    __slots__ = ("parent", "session")

    def __init__(self, parent: int, session: int) -> None:
        self.parent = parent
        self.session = session


def living_processes() -> dict[int, State]:
    """Return where every process of this machine belongs."""
    found = ((int(name), read_state(int(name))) for name in os.listdir("/proc") if name.isdigit())
    return {pid: state for pid, state in found if state is not None}


def read_state(pid: int) -> State | None:
    """Return where a process belongs, or None if it is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name stands in parentheses and may itself contain any character.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in (b"Z", b"X"):
        return None
    return State(int(fields[1]), int(fields[3]))


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
    """Return the environment that a process was started with; empty if it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read(MAX_ENVIRONMENT_BYTES)
    except OSError:
        return b""
