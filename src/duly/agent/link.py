"""The agent's end of the line to its supervisor.

Commands of one turn of the event loop leave together, in one line of JSON, so that
a hundred assignments cost one message.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import duly
from duly.agent.cgroup import Layout

PROCESS_LIMIT = 2048
"""How many processes and threads one attempt may have."""
BOOT = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from duly.agent import boot; getattr(boot, sys.argv[2])()"
)
PATIENCE = 10.0
"""Seconds that a supervisor has for killing what is left when we go."""


class Link(asyncio.Protocol):
    """A running supervisor: commands go in, events come out through `on_event`."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", on_event: Callable[[str, Any], None]
    ) -> None:
        self.lost = asyncio.Event()
        """Set when the supervisor is gone."""
        self._process = process
        self._on_event = on_event
        self._buffer = bytearray()
        self._commands: list[tuple[str, Any]] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        # A cast, not a check: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Hand on the events of every line that is complete."""
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            for name, subject in json.loads(line):
                self._on_event(name, subject)

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that nobody runs our tasks any more."""
        self.lost.set()

    def send(self, command: str, subject: Any) -> None:
        """Give a command; it leaves at the end of this turn of the event loop."""
        if not self._commands:
            asyncio.get_running_loop().call_soon(self._flush)
        self._commands.append((command, subject))

    def _flush(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(json.dumps(self._commands).encode() + b"\n")
        self._commands.clear()

    async def close(self) -> None:
        """Hang up, which makes the supervisor kill everything, and wait until it is gone."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, PATIENCE)


async def start(
    data: Path, layout: Layout, *, own_uids: bool, on_event: Callable[[str, Any], None]
) -> Link:
    """Start a supervisor for the agent whose folder is `data`."""
    ours, theirs = socket.socketpair()
    with theirs:
        config = {
            "link": theirs.fileno(),
            "layout": layout,
            "processes": PROCESS_LIMIT,
            "own_uids": own_uids,
            "lock": str(data / "supervisor.lock"),
        }
        root = str(Path(duly.__file__).parents[1])
        process = subprocess.Popen(  # noqa: ASYNC220, S603
            [sys.executable, "-I", "-S", "-c", BOOT, root, "prepare", json.dumps(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(lambda: Link(process, on_event), sock=ours)
    return link
