"""Whose process is at the other end of a socket, as the kernel tells.

Where every attempt has a user of its own, the user id alone says which it is. Where tasks
share one, a process is known by the environment that its attempt was started with, its own or
that of a process above it. Tasks that share a user could pretend to be each other in this
way, as in every other: they can read and stop each other, too.
"""

import os
import socket
import struct
from typing import NamedTuple

from duly.agent.environment import marker
from duly.agent.tree import read_environment, read_state

CREDENTIALS = struct.Struct("3i")
DEEPEST = 64
"""Processes between one that speaks and the first of its attempt."""


class Caller(NamedTuple):
    """A process, as it was when it connected."""

    pid: int
    uid: int


def caller_of(connected: socket.socket) -> Caller:
    """Return who has connected; the kernel has noted it, and nobody can change it."""
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(told)
    return Caller(pid, uid)


def workspace_of(pid: int, work: str) -> str | None:
    """Return the workspace in `work` that a process belongs to; None if it is gone by now."""
    mark = os.fsencode(marker(work))
    for _ in range(DEEPEST):
        for entry in read_environment(pid).split(b"\0"):
            if entry.startswith(mark):
                return f"{work}/{os.fsdecode(entry[len(mark) :].partition(b'/')[0])}"
        state = read_state(pid)
        if state is None or state.parent <= 1:
            return None
        pid = state.parent
    return None
