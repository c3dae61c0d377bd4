"""Allocates TCP ports to tasks that ask for them, each to one live attempt at a time."""

import errno
import socket
from collections.abc import Sequence


class Ports:
    """The free ports of a range."""

    def __init__(self, first: int = 0, last: int = -1) -> None:
        self._free = list(range(first, last + 1))

    def take(self, count: int) -> list[int]:
        """Allocate `count` ports on which nothing listens; raises BlockingIOError if too few."""
        taken: list[int] = []
        if not count:
            return taken
        for port in self._free:
            if len(taken) == count:
                break
            if _is_free(port):
                taken.append(port)
        if len(taken) < count:
            raise BlockingIOError(errno.EAGAIN, f"only {len(taken)} of {count} ports are free")
        self._free = [port for port in self._free if port not in taken]
        return taken

    def release(self, ports: Sequence[int]) -> None:
        """Return ports to the end of the free list, so that they are reused last."""
        self._free += ports


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
