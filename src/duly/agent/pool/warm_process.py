"""The session's end of a warm process."""

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from duly.agent.pool import messages
from duly.agent.pool.begun_ring import BegunRing
from duly.agent.pool.function_attempt import FunctionAttempt
from duly.agent.pool.messages import Decoder, ToProcess, ToSession
from duly.agent.pool.process.captured_output import capture_path


class WarmProcess:
    """A process, and the calls that it was given."""

    def __init__(self, number: int, generation: int, *, lanes: int, memory_mb: int) -> None:
        self.id = number
        """By which the supervisor knows it."""
        self.generation = generation
        """Counts the reloads of the application."""
        self.proof = secrets.token_urlsafe(16)
        """What only this process knows, apart from its supervisor."""
        self.lanes = lanes
        self.memory_mb = memory_mb
        self.ring: BegunRing
        self.calls: dict[int, FunctionAttempt] = {}
        """What it runs, and what waits in it, by number."""
        self.is_ready = False
        self.is_retiring = False
        """It gets no more calls, and quits after the last one."""
        self.is_killed = False
        """It was killed because of one of its calls."""
        self.is_blocked = False
        """Its lanes are taken by calls that run for long."""
        self.completed = 0
        self.output_forwarded = 0
        self.spool = ""
        self.folder = ""
        self._outgoing: list[ToProcess] = []
        self._transport: asyncio.Transport | None = None
        self.is_disconnected = asyncio.Event()
        """Nothing more will come from it."""
        self._files_left = 0

    @property
    def captures(self) -> bool:
        """Whether it runs one call at a time, whose output is in the file `capture_path`."""
        return self.lanes == 1

    @property
    def capture_path(self) -> str:
        """The file that has the output of the call that it runs."""
        return capture_path(self.folder, str(self.id), self._files_left)

    def leave_file(self) -> None:
        """Count a file with output that was left for the session."""
        if self.captures:
            self._files_left += 1

    def send(self, message: ToProcess) -> None:
        """Queue a message, sent at the end of this event loop iteration."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outgoing.append(message)

    def flush(self) -> None:
        """Send the queued messages now."""
        if self._outgoing and self._transport is not None and not self._transport.is_closing():
            self._transport.write(messages.encode(self._outgoing))
        self._outgoing.clear()

    def attach(self, transport: asyncio.Transport) -> None:
        """Send through `transport` from now on."""
        self._transport = transport

    def close(self) -> None:
        """Release what belongs to a process that is gone."""
        if self._transport is not None:
            self._transport.close()
        if hasattr(self, "ring"):
            self.ring.close()
        for path in (self.spool, self.capture_path):
            if path:
                Path(path).unlink(missing_ok=True)


class ProcessConnection(asyncio.Protocol):
    """A connection to the pool, which belongs to a process once that has proved itself."""

    def __init__(
        self,
        claim: Callable[[messages.Ready, asyncio.Transport], WarmProcess | None],
        on_message: Callable[[WarmProcess, Any], None],
    ) -> None:
        self._claim = claim
        self._on_message = on_message
        self._decoder = Decoder(ToSession)
        self._process: WarmProcess | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Pass on every complete message."""
        for message in self._decoder.feed(data):
            if self._process is not None:
                self._on_message(self._process, message)
            elif isinstance(message, messages.Ready):
                self._process = self._claim(message, self._transport)
            if self._process is None:
                self._transport.abort()
                return

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that nothing more will come."""
        if self._process is not None:
            self._process.is_disconnected.set()
