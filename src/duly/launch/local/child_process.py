"""A part of `duly up` that is a process of its own: the agent, the pages.

What it needs to know, secrets included, goes through its standard input: arguments
and environments can be read by others. It ends with us however we end, and is
started again when it ends by itself. It is in no terminal's way: Ctrl-C is for us.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import msgspec

from duly import alarm
from duly.clock import monotonic
from duly.errors import ConfigError
from duly.private_file import close_to_others

log = logging.getLogger(__name__)

STARTED = b"started\n"
"""What a part writes to its standard output when it does its work."""
SECRETS = ("DULY_KEY", "DULY_DATABASE")
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
STEADY = 60.0
"""Seconds after which a part that ends is taken to have been healthy."""
HURRIED_PATIENCE = 5.0
PR_SET_PDEATHSIG = 1

T = TypeVar("T")


class Message(msgspec.Struct, Generic[T]):
    """What a part is told when it starts."""

    parent: int
    options: T


class Part:
    """One such process, seen from the process that keeps it."""

    def __init__(
        self, name: str, module: str, options: Callable[[], Any], *, is_essential: bool = False
    ) -> None:
        self._name = name
        self._is_essential = is_essential
        self._module = module
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self.started = asyncio.Event()

    async def keep(self) -> None:
        """Start it, and start it again whenever it ends, until it is stopped.

        Raises ConfigError for an essential part that has ended before it ever did its work:
        what is wrong then does not get better by itself.
        """
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = monotonic()
            code = await self._run()
            if self._stopping.is_set():
                return
            if self._is_essential and not self.started.is_set():
                raise ConfigError(
                    f"The {self._name} did not start ({_describe(code)}); what it said stands "
                    "above. `duly doctor` tells what this machine lacks."
                )
            pause = FIRST_PAUSE if monotonic() - began > STEADY else pause
            log.warning("The %s ended (%s); it is started again.", self._name, _describe(code))
            await alarm.wait_for(self._stopping, pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def stop(self, patience: float, hurry: asyncio.Event) -> None:
        """Ask it to end, again when somebody hurries, and kill it when that does not help."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        _signal(process, signal.SIGTERM)
        if not await _ends(process, patience, hurry):
            _signal(process, signal.SIGTERM)
            if not await _ends(process, HURRIED_PATIENCE, None):
                log.warning("The %s does not end, and is killed.", self._name)
                _signal(process, signal.SIGKILL)
        await process.wait()

    async def _run(self) -> int:
        message = msgspec.json.encode(Message(os.getpid(), self._options()))
        self._process = process = await asyncio.create_subprocess_exec(
            # -P: a folder named duly where we were started is not the Duly that is meant.
            *(sys.executable, "-P", "-m", self._module),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name not in SECRETS},
            start_new_session=True,
        )
        if self._stopping.is_set():
            _signal(process, signal.SIGTERM)
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101 (both are pipes)
        with contextlib.suppress(ConnectionError):
            stdin.write(message)
            await stdin.drain()
        stdin.close()
        while line := await stdout.readline():
            if line == STARTED:
                self.started.set()
        return await process.wait()


@asynccontextmanager
async def kept(part: Part, patience: float, hurry: asyncio.Event) -> AsyncIterator[Part]:
    """Keep `part` running for as long as the block lasts, then stop it."""
    async with asyncio.TaskGroup() as group:
        group.create_task(part.keep())
        try:
            yield part
        finally:
            await part.stop(patience, hurry)


def receive(kind: type[T]) -> T:
    """Read, inside the part, what it was told; from now on it dies with its parent."""
    close_to_others()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    message = msgspec.json.decode(sys.stdin.buffer.read(), type=Message[kind])  # type: ignore[valid-type]
    if os.getppid() != message.parent:
        raise SystemExit(1)  # it was gone before we could tie ourselves to it
    return message.options


def say_started() -> None:
    """Tell the parent, inside the part, that the work has begun."""
    sys.stdout.buffer.write(STARTED)
    sys.stdout.flush()


async def _ends(
    process: asyncio.subprocess.Process, patience: float, hurry: asyncio.Event | None
) -> bool:
    """Wait until it has ended; False when patience runs out or somebody hurries."""
    async with asyncio.TaskGroup() as group:
        waits: list[asyncio.Task[Any]] = [group.create_task(process.wait())]
        if hurry is not None:
            waits.append(group.create_task(hurry.wait()))
        await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    return process.returncode is not None


def _signal(process: asyncio.subprocess.Process, signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signum)


def _describe(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
