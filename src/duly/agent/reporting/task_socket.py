"""The Unix socket through which tasks report to the agent, one for all attempts.

A socket per attempt would have to be bound and removed for every task, though almost none uses it.
So there is one, callers are identified by kernel credentials (`peer_credentials.py`), and processes
of no attempt are refused. Tasks must not exhaust the agent's time and memory: line length,
connections and lines per second are limited, and reading stops until responses are taken
(back-pressure). All share one backlog: it is long and emptied at once, and users that connect too
often are disconnected; processes that connect faster than the agent accepts can still fill it.

Decision: docs/adr/0017-attempt-keys.md.
"""

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from duly.agent.local_attempt import LocalAttempt
from duly.agent.preparation.workspace import FALLBACK_ROOT, make_fallback_root
from duly.agent.reporting import task_protocol
from duly.agent.reporting.peer_credentials import Caller, caller_of
from duly.agent.reporting.task_rate import MAX_CONNECTIONS, MAX_LINES_PER_SECOND, TaskRateLimiter
from duly.clock import monotonic
from duly.errors import DulyError, Forbidden, LimitExceeded, TooLarge
from duly.model.progress import Progress
from duly.wire import Throttled

log = logging.getLogger(__name__)

LIMIT_MESSAGE = (
    f"Limit exceeded: {MAX_CONNECTIONS} connections, and {MAX_LINES_PER_SECOND} lines a second."
)
LINE_TOO_LONG = TooLarge(f"A line may have at most {task_protocol.MAX_LINE_BYTES - 1} bytes.")
BACKLOG = 4096
"""Length of the accept queue; the default of Linux for the maximum (somaxconn)."""
MAX_ACCEPT_SECONDS = 0.02
"""Seconds spent accepting connections before the event loop continues."""
MAX_CONNECTS_PER_USER = 1000
"""Per second; further ones are closed at once. Tasks that share a user share the limit."""
ACCEPT_PAUSE_SECONDS = 1.0
"""Seconds without accepting after accept has failed, as when no more files can be opened."""


def listen(work: Path, mark: str, *, everybody: bool) -> socket.socket | None:
    """Return a listening socket for tasks, whose name is its path; None if none can be made.

    It is beside the workspaces or, for root, in a folder whose path is short enough for a socket.
    With a user per attempt, `everybody` can connect: callers are checked by their credentials.
    """
    beside = work.with_name(work.name.replace("work", "socket", 1))
    for path in [beside, FALLBACK_ROOT / f"socket-{mark}"][: 2 if os.geteuid() == 0 else 1]:
        try:
            return _bind(path, 0o666 if everybody else 0o600)
        except OSError as error:
            log.warning("no socket for tasks", extra={"path": str(path), "error": str(error)})
    return None


def _bind(path: Path, mode: int) -> socket.socket:
    if path.parent == FALLBACK_ROOT:
        make_fallback_root()
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(str(path))
        path.chmod(mode)  # Before listen, so that no process connects with another mode.
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class TaskSocket:
    """Accepts connections, and passes the reports of attempts on."""

    def __init__(
        self,
        listener: socket.socket,
        find: Callable[[Caller], LocalAttempt | None],
        on_report: Callable[[LocalAttempt, Progress | Throttled], None],
    ) -> None:
        self._listener = listener
        self._find = find
        self._on_report = on_report
        self._open: set[TaskConnection] = set()
        self._connects: Counter[int] = Counter()
        """Connections of each user in the current second."""
        self._connects_since = float("-inf")

    def __enter__(self) -> "TaskSocket":
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        path = Path(self._listener.getsockname())
        self._listener.close()
        for connection in list(self._open):
            connection.close()
        path.unlink(missing_ok=True)

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Empty the backlog, so that it has room for tasks that rarely connect."""
        until = monotonic() + MAX_ACCEPT_SECONDS
        while monotonic() < until:
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("tasks cannot connect", extra={"error": str(error)})
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener)
                loop.call_later(ACCEPT_PAUSE_SECONDS, self._listen)
                return
            self._greet(client)

    def _greet(self, client: socket.socket) -> None:
        caller = caller_of(client)
        if self._is_connecting_too_often(caller.uid):
            client.close()
            return
        client.setblocking(False)
        attempt = self._find(caller)
        if attempt is None:
            _refuse(client, Forbidden("This process belongs to no attempt that runs here."))
            return
        attempt.rate_limiter = rate_limiter = attempt.rate_limiter or TaskRateLimiter()
        if rate_limiter.connections >= MAX_CONNECTIONS or rate_limiter.pause(1, monotonic()):
            _refuse(client, LimitExceeded(LIMIT_MESSAGE))
            return
        connection = TaskConnection(
            client, attempt, rate_limiter, self._on_report, self._open.discard
        )
        self._open.add(connection)

    def _is_connecting_too_often(self, uid: int) -> bool:
        now = monotonic()
        if now - self._connects_since >= 1.0:
            self._connects.clear()
            self._connects_since = now
        self._connects[uid] += 1
        return self._connects[uid] > MAX_CONNECTS_PER_USER


class TaskConnection:
    """A connection of an attempt: lines come in, and each is answered in order."""

    def __init__(
        self,
        client: socket.socket,
        attempt: LocalAttempt,
        rate_limiter: TaskRateLimiter,
        on_report: Callable[[LocalAttempt, Progress | Throttled], None],
        on_close: Callable[["TaskConnection"], None],
    ) -> None:
        self._socket = client
        self._attempt = attempt
        self._rate_limiter = rate_limiter
        self._on_report = on_report
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._unread = b""
        self._answers = b""
        self._is_skipping = False
        """Whether the rest of an overlong line is being skipped."""
        self._is_closing = False
        """Whether the input has ended, and only pending responses are left to send."""
        rate_limiter.connections += 1
        self._listen()

    def close(self) -> None:
        """Close the connection."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._rate_limiter.connections -= 1
            self._on_close(self)

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        try:
            data = self._socket.recv(task_protocol.MAX_LINE_BYTES - len(self._unread))
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not data:
            # End of input also ends the last line, even without a newline.
            self._is_closing = True
            data = b"\n" if self._unread else b""
        *whole, self._unread = (self._unread + self._skip(data)).split(b"\n")
        self._answers = b"".join(self._answer(line) for line in whole)
        if len(self._unread) >= task_protocol.MAX_LINE_BYTES:
            self._answers += task_protocol.refusal(LINE_TOO_LONG)
            self._unread, self._is_skipping = b"", True
        pause = self._rate_limiter.pause(len(whole) or 1, monotonic())
        self._loop.remove_reader(self._socket)
        self._write(pause)

    def _skip(self, data: bytes) -> bytes:
        """Return `data` without the rest of an overlong line."""
        if not self._is_skipping:
            return data
        _, end, rest = data.partition(b"\n")
        self._is_skipping = not end
        return rest

    def _answer(self, line: bytes) -> bytes:
        if self._attempt.ended_at is not None:
            return task_protocol.refusal(Forbidden("The attempt is over."))
        try:
            report = task_protocol.read(line, self._attempt.uses)
        except DulyError as error:
            return task_protocol.refusal(error)
        self._on_report(self._attempt, report)
        return task_protocol.OK

    def _write(self, pause: float = 0.0) -> None:
        """Send the responses; reading resumes only after that."""
        try:
            sent = self._socket.send(self._answers) if self._answers else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        self._answers = self._answers[sent:]
        if self._answers:
            self._loop.add_writer(self._socket, self._write)
            return
        self._loop.remove_writer(self._socket)
        if self._is_closing:
            self.close()
        elif pause:
            self._loop.call_later(pause, self._listen)
        else:
            self._listen()


def _refuse(client: socket.socket, error: DulyError) -> None:
    with client, suppress(OSError):
        client.send(task_protocol.refusal(error))
