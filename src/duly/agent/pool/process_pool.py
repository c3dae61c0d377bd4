"""Keeps the warm processes of a worker: starts them, replaces them, and lets them retire.

The supervisor starts them like attempts without an end: it limits their memory, freezes or kills
them when the lease is over, and tells how each has ended.
"""

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duly.agent.gateway import Backoff
from duly.agent.local_attempt import read_spool
from duly.agent.pool.begun_ring import BegunRing
from duly.agent.pool.messages import Quit, Ready
from duly.agent.pool.warm_process import ProcessConnection, WarmProcess
from duly.agent.preparation import environment
from duly.agent.reporting.peer_credentials import caller_of
from duly.agent.supervision.spawner import WORKSPACE_READY
from duly.agent.supervision.supervisor_link import SupervisorLink
from duly.errors import ConfigError

log = logging.getLogger(__name__)

SOCKET_NAME = "socket"
PROOF = "_DULY_PROOF"
QUIT_GRACE_SECONDS = 10.0
"""Seconds that shutdown hooks may take."""
MAX_STARTUP_OUTPUT_BYTES = 2**24
"""Output of a process outside of calls that is passed on to the worker's own."""
LAST_WORDS_SECONDS = 2.0
"""Seconds that the messages of a process may take to arrive after it has ended."""
CPU_WEIGHT_MILLI = 1000
NO_CAP = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """What the processes of a worker are, and when they are replaced."""

    app: str
    processes: int
    threads: int = 1
    concurrency: int = 1
    max_tasks: int | None = None
    """Calls after which a process is replaced."""
    max_memory_mb: int | None = None
    """A process that has ever used more is replaced after the call."""
    memory_mb: int = 0
    """The memory of a process, which ends when it uses more; 0: unlimited."""
    reload: bool = False

    @property
    def lanes(self) -> int:
        """How many calls a process runs at once."""
        return max(self.threads, self.concurrency)


class ProcessPool:
    """The processes of a worker. `link` is set before the first is started."""

    def __init__(
        self,
        options: PoolOptions,
        work: Path,
        spool: Path,
        *,
        on_change: Callable[[], None],
        on_message: Callable[[WarmProcess, Any], None],
        on_gone: Callable[[WarmProcess, dict[str, Any]], None],
    ) -> None:
        self.link: SupervisorLink
        self.options = options
        self.functions: frozenset[str] = frozenset()
        """What the application of the newest generation knows."""
        self.files: list[str] = []
        self.generation = 0
        self._work, self._spool = work, spool
        self._on_change = on_change
        self._on_message = on_message
        self._on_gone = on_gone
        self._processes: dict[int, WarmProcess] = {}
        self._last_id = 0
        self._backoff = Backoff(30.0)
        self._server: asyncio.Server | None = None
        self._warm: asyncio.Future[None] | None = None
        self._is_closing = False
        self._ends: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> list[WarmProcess]:
        """The processes that take calls."""
        return [one for one in self._processes.values() if one.is_ready and not one.is_retiring]

    @property
    def all(self) -> Collection[WarmProcess]:
        """All processes that are not gone."""
        return self._processes.values()

    @property
    def lanes(self) -> int:
        """How many calls can run at once when all processes are warm."""
        return self.options.processes * self.options.lanes

    async def open(self) -> None:
        """Listen, start the processes, and return once all are warm.

        Raises ConfigError if the application cannot be loaded.
        """
        self._warm = asyncio.get_running_loop().create_future()
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: ProcessConnection(self._claim, self._on_message), sock=self._listen()
        )
        self._fill()
        try:
            await self._warm
        finally:
            self._warm = None

    def close(self) -> None:
        """Stop listening and replacing; the supervisor kills what is left."""
        self._is_closing = True
        if self._server is not None:
            self._server.close()
        for process in self._processes.values():
            process.close()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        # The path of a socket may have 107 bytes; that of a descriptor is always short.
        folder = os.open(self._work, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
        finally:
            os.close(folder)
        listener.listen(64)
        return listener

    def _fill(self) -> None:
        """Start as many processes of the newest generation as are missing."""
        if self._is_closing:
            return
        living = [
            one
            for one in self._processes.values()
            if one.generation == self.generation and not one.is_retiring
        ]
        for _ in range(self.options.processes - len(living)):
            self._start()

    def _start(self) -> None:
        options = self.options
        self._last_id += 1
        process = WarmProcess(
            self._last_id, self.generation, lanes=options.lanes, memory_mb=options.memory_mb
        )
        self._processes[process.id] = process
        name = f"process-{process.id}"
        ring = f"{self._work}/{name}.ring"
        process.ring = BegunRing(ring)
        process.spool, process.folder = f"{self._spool}/{name}", str(self._spool)
        config = {
            "app": options.app,
            "folder": str(self._work),
            "socket": SOCKET_NAME,
            "ring": ring,
            "spool": process.folder,
            "process": str(process.id),
            "threads": options.threads,
            "concurrency": options.concurrency,
            "files": options.reload,
        }
        marker = environment.marker(f"{self._work}/{name}")
        variable, _, value = marker.partition("=")
        env = {**os.environ, variable: value, PROOF: process.proof}
        # -P: do not import from a folder named duly in the working directory.
        argv = [sys.executable, "-P", "-m", "duly.agent.pool.process", json.dumps(config)]
        self.link.send(
            "start",
            {
                "id": process.id,
                "tenant": None,
                "begin": (argv, env, str(Path.cwd()), WORKSPACE_READY, None, False),
                "disk": 0,
                "own_uid": None,
                "marker": marker,
                "limits": (options.memory_mb * 2**20, CPU_WEIGHT_MILLI, False),
                "execution_cap": NO_CAP,
                "grace": QUIT_GRACE_SECONDS,
                "log_limit": MAX_STARTUP_OUTPUT_BYTES,
                "spool": process.spool,
            },
        )

    def _claim(self, ready: Ready, transport: asyncio.Transport) -> WarmProcess | None:
        """Return the process that has connected; None for anybody else."""
        caller = caller_of(transport.get_extra_info("socket"))
        process = next((one for one in self._processes.values() if one.proof == ready.proof), None)
        if process is None or process.is_ready or caller.uid != os.geteuid():
            log.warning("a stranger has connected", extra={"pid": caller.pid})
            return None
        process.attach(transport)
        process.is_ready = True
        _unlink(Path(f"{self._work}/process-{process.id}.ring"))
        self._backoff.reset()
        if process.generation == self.generation:
            self.functions, self.files = frozenset(ready.functions), ready.files
            self._replace_old()
        if self._warm is not None and len(self.ready) >= self.options.processes:
            self._settle_warm(None)
        self._on_change()
        return process

    def _replace_old(self) -> None:
        """Let a process of an older generation retire, now that one of the newest is warm."""
        old = [one for one in self.ready if one.generation < self.generation]
        is_complete = len(self.ready) - len(old) >= self.options.processes
        for process in old if is_complete else old[:1]:
            self.retire(process)

    def completed(self, process: WarmProcess, peak_bytes: int) -> None:
        """Count a call, and replace a process that has run enough or has grown too large."""
        process.completed += 1
        options = self.options
        is_spent = options.max_tasks is not None and process.completed >= options.max_tasks
        is_large = options.max_memory_mb is not None and peak_bytes > options.max_memory_mb * 2**20
        if (is_spent or is_large) and not process.is_retiring:
            self.retire(process)
            self._fill()

    def retire(self, process: WarmProcess) -> None:
        """Give a process no more calls, and let it quit after the last."""
        process.is_retiring = True
        if not process.calls:
            process.send(Quit())
        self._on_change()

    def quit_if_done(self, process: WarmProcess) -> None:
        """Let a retiring process quit if it has no calls any more."""
        if process.is_retiring and not process.calls and not self._is_closing:
            process.send(Quit())

    def kill(self, process: WarmProcess) -> None:
        """Kill a process and all that it has started."""
        process.is_killed = True
        self.link.send("kill", process.id)

    def reload(self) -> None:
        """Start processes with the source files as they are now, then replace the old ones."""
        self.generation += 1
        for process in [one for one in self._processes.values() if not one.is_ready]:
            self.kill(process)
        self._fill()

    def on_supervisor_event(self, name: str, subject: Any) -> None:
        """Handle an event that the supervisor sent."""
        if name == "output":
            number, size = subject
            process = self._processes.get(number)
            if process is not None:
                self._forward(process, size)
        elif name == "exited":
            process = self._processes.get(subject["id"])
            if process is not None:
                task = asyncio.get_running_loop().create_task(self._end(process, subject))
                self._ends.add(task)
                task.add_done_callback(self._ends.discard)

    def _forward(self, process: WarmProcess, size: int) -> None:
        """Pass what a process writes outside of calls on to our own output."""
        data = read_spool(process.spool, process.output_forwarded, size - process.output_forwarded)
        process.output_forwarded += len(data)
        sys.stderr.buffer.write(data)
        sys.stderr.flush()

    async def _end(self, process: WarmProcess, event: dict[str, Any]) -> None:
        """Handle the end of a process, once its last messages are here."""
        if process.is_ready:
            try:
                await asyncio.wait_for(process.is_disconnected.wait(), LAST_WORDS_SECONDS)
            except TimeoutError:
                log.warning("a process has left its connection to another one")
        if self._is_closing:
            return
        output = event.get("log") or b""
        if not event.get("failure") and event.get("log") is None:
            self._forward(process, event["log_size"])
        was_ready = process.is_ready
        process.is_ready = False
        del self._processes[process.id]
        self._on_gone(process, event)
        process.close()
        if was_ready or process.is_killed:
            sys.stderr.buffer.write(output)
            sys.stderr.flush()
            self._fill()
        else:
            self._on_failed_start(process, event, output.decode(errors="replace").strip())
        self._on_change()

    def _on_failed_start(self, process: WarmProcess, event: dict[str, Any], output: str) -> None:
        how = event.get("failure") or f"exit code {event.get('code')}"
        message = output or f"A process of the worker could not be started ({how})."
        if self._warm is not None:
            self._settle_warm(ConfigError(message))
            return
        log.error("a process of the worker could not be started:\n%s", message)
        if process.generation == self.generation:
            asyncio.get_running_loop().call_later(self._backoff.next(), self._fill)

    def _settle_warm(self, error: ConfigError | None) -> None:
        assert self._warm is not None  # noqa: S101
        if self._warm.done():
            return
        if error is None:
            self._warm.set_result(None)
        else:
            self._warm.set_exception(error)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
