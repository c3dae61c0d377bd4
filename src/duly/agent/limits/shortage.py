"""What the node itself is short of: for a while it takes no more work, and says so.

A start that fails for want of the node's own descriptors, processes, memory or disk space is
nobody's fault. The attempt goes back to its queue, and the node pauses, longer each time that it is
no better afterwards. Otherwise one node would use up the attempts of every task in the queue.
"""

import errno

FIRST_PAUSE, MAX_PAUSE = 10.0, 300.0
"""Seconds without work after the first shortage, and after many in a row."""
HAND_BACK_DELAY = 2.0
"""Seconds until an attempt goes back to its queue. Servers know of the pause by then; before, it
would come straight back."""
RESOURCES = {
    errno.EMFILE: "open files",
    errno.ENFILE: "open files",
    errno.EAGAIN: "processes or users",
    errno.ENOMEM: "memory",
    errno.ENOSPC: "disk space",
    errno.EDQUOT: "disk space",
}
AT_EXEC = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
"""Errors of an exec that are not about the program."""


def find_shortage(step: str, error: int) -> str | None:
    """Return what the node lacks, if that is why a start failed at `step` with `error`."""
    if step == "exec" and error not in AT_EXEC:
        return None
    # Without ports only those tasks cannot start that ask for some.
    return None if step == "ports" else RESOURCES.get(error)


class Shortage:
    """Until when the node takes no work, and why."""

    def __init__(self) -> None:
        self._resource = ""
        self._pause = FIRST_PAUSE
        self._until = float("-inf")

    def begin(self, resource: str, now: float) -> None:
        """Pause from `now` on. Several starts that fail at a time are one shortage."""
        if now < self._until:
            return
        is_new = now - self._until > MAX_PAUSE
        self._pause = FIRST_PAUSE if is_new else min(2 * self._pause, MAX_PAUSE)
        self._until = now + self._pause
        self._resource = resource

    def current(self, now: float) -> str | None:
        """Return what the node is short of; None if it takes work."""
        return self._resource if now < self._until else None
