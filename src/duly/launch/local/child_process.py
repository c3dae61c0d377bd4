"""Supervises a child process of `duly up`: the agent or the dashboard.

Options, secrets included, are passed on standard input, because other users can read arguments and
environments. The child dies with its parent, is restarted with backoff when it exits, and has its
own session, so Ctrl-C reaches only the parent.
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

from duly import timers
from duly.clock import monotonic
from duly.errors import ConfigError
from duly.private_file import restrict_umask

log = logging.getLogger(__name__)

STARTED = b"started\n"
"""The line that a child writes to stdout when it has started."""
TASKS_LEFT = b"tasks left: "
"""The start of the lines that an agent writes while it stops: how many tasks have not ended."""
SECRET_VARIABLES = ("DULY_KEY", "DULY_DATABASE")
INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 30.0
HEALTHY_AFTER_SECONDS = 60.0
"""A child that ran this long was healthy: its restart backoff is reset."""
HURRIED_STOP_TIMEOUT_SECONDS = 5.0
PR_SET_PDEATHSIG = 1

T = TypeVar("T")


class Message(msgspec.Struct, Generic[T]):
    """The message on a child's standard input."""

    parent: int
    options: T


class ChildProcess:
    """A child process, seen from its parent."""

    def __init__(
        self,
        name: str,
        module: str,
        options: Callable[[], Any],
        *,
        is_essential: bool = False,
        on_tasks_left: Callable[[int], None] | None = None,
    ) -> None:
        self._name = name
        self._on_tasks_left = on_tasks_left
        self._is_essential = is_essential
        self._module = module
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Start the process, and restart it whenever it exits, until it is stopped.

        Raises ConfigError if an essential child exits before it has started once: a restart
        would not help.
        """
        backoff = INITIAL_BACKOFF_SECONDS
        while not self._stopping.is_set():
            began = monotonic()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            if self._is_essential and not self.started.is_set():
                raise ConfigError(
                    f"The {self._name} did not start ({_describe(code)}); see its output above. "
                    "Run 'duly doctor' to check this machine."
                )
            backoff = (
                INITIAL_BACKOFF_SECONDS if monotonic() - began > HEALTHY_AFTER_SECONDS else backoff
            )
            log.warning("The %s exited (%s); restarting it.", self._name, _describe(code))
            await timers.wait_for(self._stopping, backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)

    async def stop(self, timeout: float, hurry: asyncio.Event) -> None:
        """Send SIGTERM, a second one when `hurry` is set, and SIGKILL if that does not help."""
        self._stopping.set()
        process = self._process
        if process is None:
            return
        _signal(process, signal.SIGTERM)
        if not await _exits_within(process, timeout, hurry):
            _signal(process, signal.SIGTERM)
            if not await _exits_within(process, HURRIED_STOP_TIMEOUT_SECONDS, None):
                log.warning("The %s does not stop; killing it.", self._name)
                _signal(process, signal.SIGKILL)
        await process.wait()

    async def _run_once(self) -> int:
        message = msgspec.json.encode(Message(os.getpid(), self._options()))
        self._process = process = await asyncio.create_subprocess_exec(
            # -P: do not import from a folder named duly in the working directory.
            *(sys.executable, "-P", "-m", self._module),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name not in SECRET_VARIABLES},
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
            elif line.startswith(TASKS_LEFT) and self._on_tasks_left:
                self._on_tasks_left(int(line.removeprefix(TASKS_LEFT)))
        return await process.wait()


@asynccontextmanager
async def keep_running(
    child: ChildProcess, timeout: float, hurry: asyncio.Event
) -> AsyncIterator[ChildProcess]:
    """Keep `child` running until the block ends, then stop it."""
    async with asyncio.TaskGroup() as group:
        group.create_task(child.run())
        try:
            yield child
        finally:
            await child.stop(timeout, hurry)


def receive(options_type: type[T]) -> T:
    """In the child: read the options, and arrange to die with the parent."""
    restrict_umask()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    message = msgspec.json.decode(sys.stdin.buffer.read(), type=Message[options_type])  # type: ignore[valid-type]
    if os.getppid() != message.parent:
        raise SystemExit(1)  # The parent died before prctl.
    return message.options


def report_started() -> None:
    """In the child: notify the parent that the child has started."""
    sys.stdout.buffer.write(STARTED)
    sys.stdout.flush()


def report_tasks_left(tasks: int) -> None:
    """In the child: notify the parent how many tasks have not ended."""
    sys.stdout.buffer.write(b"%s%d\n" % (TASKS_LEFT, tasks))
    sys.stdout.flush()


async def _exits_within(
    process: asyncio.subprocess.Process, timeout: float, hurry: asyncio.Event | None
) -> bool:
    """Wait for the exit; return False after `timeout` seconds or when `hurry` is set."""
    async with asyncio.TaskGroup() as group:
        waits: list[asyncio.Task[Any]] = [group.create_task(process.wait())]
        if hurry is not None:
            waits.append(group.create_task(hurry.wait()))
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    return process.returncode is not None


def _signal(process: asyncio.subprocess.Process, signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signum)


def _describe(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
