"""Messages over a socket, each a list, between the agent, its supervisor and the spawner.

They are encoded with marshal, which is built into Python, takes bytes as they are and
costs a small part of what JSON does (4 µs instead of 75 for eight starts, there and back).
All of them are started from one installation of one Python, and none reads what a task
wrote but as bytes, which is what marshal asks for.
"""

import marshal
import select
import socket
from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

HEADER = 4
MOST_DESCRIPTORS = 253
"""The kernel passes no more of them at once."""
CHUNK = 2**16
"""More than that would be asked of the kernel anew for every message."""
ROOM = socket.CMSG_SPACE(MOST_DESCRIPTORS * 4)


def encode(message: list[Any]) -> bytes:
    """Return `message` as it travels."""
    body = marshal.dumps(message)
    return len(body).to_bytes(HEADER, "little") + body


class Decoder:
    """Puts together what arrives in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Any]:
        """Take in `data`, and return the items of all messages that are complete by now."""
        data = self._rest + data if self._rest else data
        items: list[Any] = []
        start = 0
        while len(data) - start >= HEADER:
            end = start + HEADER + int.from_bytes(data[start : start + HEADER], "little")
            if end > len(data):
                break
            items += marshal.loads(data[start + HEADER : end])  # noqa: S302 -- see above
            start = end
        self._rest = data[start:]
        return items


class Frames:
    """One end of the socket. It never blocks, so that nobody stops us by not reading."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.socket = end
        self.received: deque[int] = deque()
        """Descriptors that came along, in the order in which they were sent."""
        self._is_awaited = False
        """Whether somebody waits for the moment when more can be sent."""
        self._decoder = Decoder()
        self._outgoing: deque[tuple[memoryview, Sequence[int]]] = deque()

    @property
    def is_full(self) -> bool:
        """Tell whether something waits until the other side reads on."""
        return bool(self._outgoing)

    def wait_for_room(self, poll: select.epoll) -> None:
        """Have `poll` tell when the other side reads on, if something waits for that."""
        if self.is_full != self._is_awaited:
            self._is_awaited = self.is_full
            poll.modify(self.socket, select.EPOLLIN | (select.EPOLLOUT if self.is_full else 0))

    def receive(self) -> list[Any] | None:
        """Return what has arrived, flattened; None means that the other side is gone."""
        try:
            data, extra, _, _ = self.socket.recvmsg(CHUNK, ROOM, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        if not data:
            return None
        for _, _, descriptors in extra:
            self.received.extend(memoryview(descriptors).cast("i"))
        return self._decoder.feed(data)

    def drain(self) -> list[Any]:
        """Return all that the other side had sent before it was gone."""
        items: list[Any] = []
        while True:
            try:
                data = self.socket.recv(CHUNK)
            except (BlockingIOError, ConnectionError):
                return items
            if not data:
                return items
            items += self._decoder.feed(data)

    def try_to_send(
        self, message: list[Any] | None = None, descriptors: Sequence[int] = ()
    ) -> None:
        """Send `message` and all that is left over, or keep it until the other side reads on.

        Descriptors must stay open until there is an answer. That the other side is gone is seen
        where we read.
        """
        if message is not None:
            self._outgoing.append((memoryview(encode(message)), descriptors))
        while self._outgoing:
            data, passed = self._outgoing[0]
            extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", passed))] if passed else []
            try:
                sent = self.socket.sendmsg([data], extra)
            except BlockingIOError:
                return
            except OSError:
                self._outgoing.clear()
                return
            # Descriptors leave with the first byte.
            if sent == len(data):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = data[sent:], ()
