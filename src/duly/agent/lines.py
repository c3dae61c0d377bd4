"""Lines of JSON over a socket that never blocks: the supervisor's end of the link.

An agent that was stopped does not read, and must not be able to stop its supervisor
with that.
"""

import json
import os
from typing import Any


class Lines:
    """Batches in, batches out, each of them one line."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._incoming = bytearray()
        self._outgoing = bytearray()

    @property
    def is_full(self) -> bool:
        """Tell whether something waits until the other side reads on."""
        return bool(self._outgoing)

    def receive(self) -> list[Any] | None:
        """Return what has arrived, flattened; None means that the other side is gone."""
        try:
            data = os.read(self.fd, 2**20)
        except BlockingIOError:
            return []
        except ConnectionError:
            return None
        if not data:
            return None
        self._incoming += data
        if b"\n" not in data:
            return []
        *complete, rest = self._incoming.split(b"\n")
        self._incoming = rest
        return [item for line in complete for item in json.loads(line)]

    def send(self, batch: list[Any]) -> None:
        """Send `batch`, now or when the other side reads on."""
        self._outgoing += json.dumps(batch).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what could not be sent before."""
        try:
            sent = os.write(self.fd, self._outgoing)
        except BlockingIOError:
            return
        except BrokenPipeError:
            sent = len(self._outgoing)  # That it is gone is seen where we read.
        del self._outgoing[:sent]
