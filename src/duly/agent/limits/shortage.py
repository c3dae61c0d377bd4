"""Pauses the node while it is short of a resource, and says which.

A start that fails for lack of the node's own descriptors, processes, memory or disk space is not
the task's fault. The attempt goes back to its queue, and the node takes no work for a while, longer
each time that the shortage persists. Otherwise one node would use up the attempts of every queued
task.
"""

import errno

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 10.0, 300.0
"""Seconds of the pause after the first shortage, and after many in a row."""
HAND_BACK_DELAY_SECONDS = 2.0
"""Seconds until an attempt goes back to its queue. Earlier, before servers know of the pause, it
would be assigned to this node again."""
RESOURCE_BY_ERROR = {
    errno.EMFILE: "open files",
    errno.ENFILE: "open files",
    errno.EAGAIN: "processes or users",
    errno.ENOMEM: "memory",
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
}
NODE_ERRORS_AT_EXEC = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
"""Errors of exec that the node causes, not the program."""


def find_shortage(step: str, error: int) -> str | None:
    """Return the resource that the node lacks, if that made a start fail at `step`."""
    if step == "exec" and error not in NODE_ERRORS_AT_EXEC:
        return None
    # A lack of ports affects only tasks that ask for ports.
    return None if step == "ports" else RESOURCE_BY_ERROR.get(error)


class Shortage:
    """The node's current pause and its reason."""

    def __init__(self) -> None:
        self._resource = ""
        self._pause = MIN_PAUSE_SECONDS
        self._until = float("-inf")

    def begin(self, resource: str, now: float) -> None:
        """Pause from `now` on. Starts that fail during a pause belong to the same shortage."""
        if now < self._until:
            return
        is_new = now - self._until > MAX_PAUSE_SECONDS
        self._pause = MIN_PAUSE_SECONDS if is_new else min(2 * self._pause, MAX_PAUSE_SECONDS)
        self._until = now + self._pause
        self._resource = resource

    def current(self, now: float) -> str | None:
        """Return the resource that the node is short of; None if it takes work."""
        return self._resource if now < self._until else None
