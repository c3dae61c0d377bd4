"""Identifies the process at the other end of a socket by its kernel credentials.

Where every attempt has its own user, the user id alone identifies the attempt. Where tasks share a
user, a process is identified by the environment that its attempt was started with, its own or that
of an ancestor. Tasks that share a user could impersonate each other this way, but they can read and
stop each other anyway.
"""

import os
import socket
import struct
from typing import NamedTuple

from duly.agent.preparation.environment import marker
from duly.agent.supervision.process_tree import read_environment, read_state

CREDENTIALS = struct.Struct("3i")
MAX_ANCESTORS = 64
"""Processes that are searched from the caller up to the first process of its attempt."""


class Caller(NamedTuple):
    """A process, as it was when it connected."""

    pid: int
    uid: int


def caller_of(client: socket.socket) -> Caller:
    """Return the process that has connected, as recorded by the kernel: it cannot be forged."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(credentials)
    return Caller(pid, uid)


def workspace_of(pid: int, work: str) -> str | None:
    """Return the workspace in `work` that a process belongs to; None if it has none or is gone."""
    mark = os.fsencode(marker(work))
    for _ in range(MAX_ANCESTORS):
        for entry in read_environment(pid).split(b"\0"):
            if entry.startswith(mark):
                return f"{work}/{os.fsdecode(entry[len(mark) :].partition(b'/')[0])}"
        state = read_state(pid)
        if state is None or state.parent <= 1:
            return None
        pid = state.parent
    return None
