"""The agent's connection to its supervisor process.

All commands of one event loop iteration are sent in one message, so that a hundred assignments cost
no more than one.
"""

import asyncio
import contextlib
import fcntl
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import duly
from duly.agent.limits.cgroup import Layout
from duly.agent.supervision.frames import Decoder, encode

MAX_PROCESSES_PER_ATTEMPT = 2048
"""Maximum number of processes and threads of an attempt."""
BOOT_CODE = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from duly.agent.supervision import boot; getattr(boot, sys.argv[2])()"
)
SHUTDOWN_TIMEOUT_SECONDS = 10.0
"""Seconds that the supervisor has to kill the remaining attempts when the agent exits."""


class SupervisorLink(asyncio.Protocol):
    """A running supervisor: commands go in, events come out through `on_event`."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        lock: Path,
        on_event: Callable[[str, Any], None],
    ) -> None:
        self.lost = asyncio.Event()
        """Set when the supervisor is gone."""
        self._process = process
        self._lock = lock
        self._on_event = on_event
        self._decoder = Decoder()
        self._commands: list[tuple[str, Any]] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # A cast, not a check: uvloop's transports are not instances of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Dispatch the events of every complete message."""
        for name, subject in self._decoder.feed(data):
            self._on_event(name, subject)

    def connection_lost(self, exc: Exception | None) -> None:
        """Signal that the supervisor is gone."""
        self.lost.set()

    def send(self, command: str, subject: Any) -> None:
        """Queue a command, which is sent at the end of this event loop iteration."""
        if not self._commands:
            asyncio.get_running_loop().call_soon(self.flush)
        self._commands.append((command, subject))

    def flush(self) -> None:
        """Send the queued commands now."""
        if not self._commands:
            return
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(self._commands))
        self._commands.clear()

    async def close(self) -> None:
        """Disconnect, which makes the supervisor kill all attempts, and wait until it is gone."""
        self.flush()
        if self._transport is not None:
            self._transport.close()
        await asyncio.to_thread(self._wait_until_gone)

    def _wait_until_gone(self) -> None:
        """Wait for the supervisor and its spawners, which hold its lock until they exit."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(SHUTDOWN_TIMEOUT_SECONDS)
        deadline = time.monotonic() + SHUTDOWN_TIMEOUT_SECONDS
        with self._lock.open("a") as file:
            while time.monotonic() < deadline:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(0.005)
                else:
                    return


async def start(
    data: Path, layout: Layout, *, own_uids: bool, on_event: Callable[[str, Any], None]
) -> SupervisorLink:
    """Start a supervisor for the agent whose folder is `data`."""
    ours, theirs = socket.socketpair()
    lock = data / "supervisor.lock"
    with theirs:
        config = {
            "link": theirs.fileno(),
            "layout": layout,
            "processes": MAX_PROCESSES_PER_ATTEMPT,
            "own_uids": own_uids,
            "lock": str(lock),
        }
        root = str(Path(duly.__file__).parents[1])
        process = subprocess.Popen(  # noqa: ASYNC220, S603
            [sys.executable, "-I", "-S", "-c", BOOT_CODE, root, "prepare", json.dumps(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    loop = asyncio.get_running_loop()
    _, link = await loop.create_connection(
        lambda: SupervisorLink(process, lock, on_event), sock=ours
    )
    return link
