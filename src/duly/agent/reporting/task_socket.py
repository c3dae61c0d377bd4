"""The socket through which tasks speak to the agent: one for all of them.

A socket for each attempt would have to be made, bound and removed for every task, and
almost none says anything. So there is one, and whoever connects is known by what the
kernel tells of it (`duly.agent.callers`); a process of no attempt is sent away.

A task is not to be trusted with the agent's time and memory: lines are short, connections
few, more than so many lines a second are read later, and nothing more is read from one
who does not take its answers. The backlog is one for all: it is long, and emptied whenever there
is anything in it, and those of a user who connects too often are closed unheard. That bounds what
they cost; many processes that connect faster than we accept can still leave no room for others.
"""

import asyncio
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from duly.agent import lines
from duly.agent.callers import Caller, caller_of
from duly.agent.executor import Local
from duly.agent.speaker import MOST_CONNECTIONS, MOST_LINES, Speaker
from duly.agent.workspace import FALLBACK, make_fallback
from duly.clock import monotonic
from duly.errors import DulyError, Forbidden, LimitExceeded, TooLarge
from duly.model.progress import Progress
from duly.wire import AttemptRef

log = logging.getLogger(__name__)

TOO_MANY = f"Limit exceeded: {MOST_CONNECTIONS} connections, and {MOST_LINES} lines a second."
TOO_LONG = TooLarge(f"A line may have at most {lines.LONGEST - 1} bytes.")
BACKLOG = 4096
"""Connections that can wait; as many as Linux lets any socket have unless told otherwise."""
MAX_ACCEPT_TIME = 0.02
"""Seconds of taking in connections before anything else has its turn."""
MAX_CONNECTS_PER_USER = 1000
"""A second; more than that are closed at once. Where tasks share a user, all of them together."""
PAUSE = 1.0
"""Seconds without taking any in when this process can have no more open files."""


def listen(work: Path, mark: str, *, everybody: bool) -> socket.socket | None:
    """Return a socket for tasks, whose name is its path; None if there can be none here.

    It is beside the workspaces; or, for root, where every path is short enough for a socket.
    With a user for each attempt `everybody` can connect: who it is counts, not who can.
    """
    beside = work.with_name(work.name.replace("work", "socket", 1))
    for path in [beside, FALLBACK / f"socket-{mark}"][: 2 if os.geteuid() == 0 else 1]:
        try:
            return _bind(path, 0o666 if everybody else 0o600)
        except OSError as error:
            log.warning("no socket for tasks", extra={"path": str(path), "error": str(error)})
    return None


def _bind(path: Path, mode: int) -> socket.socket:
    if path.parent == FALLBACK:
        make_fallback()
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.bind(str(path))
        path.chmod(mode)  # Before anybody can connect.
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class TaskSocket:
    """Listens, and hands on what attempts say."""

    def __init__(
        self,
        listener: socket.socket,
        find: Callable[[Caller], Local | None],
        hear: Callable[[AttemptRef, Progress], None],
    ) -> None:
        self._listener = listener
        self._find = find
        self._hear = hear
        self._open: set[Conversation] = set()
        self._connects: Counter[int] = Counter()
        """How often each user has connected in this second."""
        self._connects_since = float("-inf")

    def __enter__(self) -> "TaskSocket":
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        path = Path(self._listener.getsockname())
        self._listener.close()
        for conversation in list(self._open):
            conversation.close()
        path.unlink(missing_ok=True)

    def _listen(self) -> None:
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._take_in)

    def _take_in(self) -> None:
        """Empty the backlog, so that there is room in it for those who connect seldom."""
        until = monotonic() + MAX_ACCEPT_TIME
        while monotonic() < until:
            try:
                connected, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("tasks cannot connect", extra={"error": str(error)})
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener)
                loop.call_later(PAUSE, self._listen)
                return
            self._welcome(connected)

    def _welcome(self, connected: socket.socket) -> None:
        caller = caller_of(connected)
        if self._is_over_budget(caller.uid):
            connected.close()
            return
        connected.setblocking(False)
        local = self._find(caller)
        if local is None:
            _send_away(connected, Forbidden("This process belongs to no attempt that runs here."))
            return
        local.speaker = speaker = local.speaker or Speaker()
        if speaker.connections >= MOST_CONNECTIONS or speaker.pause(1, monotonic()):
            _send_away(connected, LimitExceeded(TOO_MANY))
            return
        conversation = Conversation(connected, local, speaker, self._hear, self._open.discard)
        self._open.add(conversation)

    def _is_over_budget(self, uid: int) -> bool:
        now = monotonic()
        if now - self._connects_since >= 1.0:
            self._connects.clear()
            self._connects_since = now
        self._connects[uid] += 1
        return self._connects[uid] > MAX_CONNECTS_PER_USER


class Conversation:
    """One connection of an attempt: lines come in, and each is answered in turn."""

    def __init__(
        self,
        connected: socket.socket,
        local: Local,
        speaker: Speaker,
        hear: Callable[[AttemptRef, Progress], None],
        closed: Callable[["Conversation"], None],
    ) -> None:
        self._socket = connected
        self._local = local
        self._speaker = speaker
        self._hear = hear
        self._closed = closed
        self._loop = asyncio.get_running_loop()
        self._said = b""
        self._answers = b""
        self._is_skipping = False
        """Whether the rest of a line that was too long is still to come."""
        self._is_last = False
        """Whether nothing is read any more, and the answers are all that is left to do."""
        speaker.connections += 1
        self._listen()

    def close(self) -> None:
        """Hang up."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._speaker.connections -= 1
            self._closed(self)

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        try:
            data = self._socket.recv(lines.LONGEST - len(self._said))
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not data:
            # What has no end of line is a line all the same: whoever says no more has said it.
            self._is_last = True
            data = b"\n" if self._said else b""
        *whole, self._said = (self._said + self._skip(data)).split(b"\n")
        self._answers = b"".join(self._answer(line) for line in whole)
        if len(self._said) >= lines.LONGEST:
            self._answers += lines.refusal(TOO_LONG)
            self._said, self._is_skipping = b"", True
        pause = self._speaker.pause(len(whole) or 1, monotonic())
        self._loop.remove_reader(self._socket)
        self._write(pause)

    def _skip(self, data: bytes) -> bytes:
        """Return `data` without what belongs to a line that was too long."""
        if not self._is_skipping:
            return data
        _, end, rest = data.partition(b"\n")
        self._is_skipping = not end
        return rest

    def _answer(self, line: bytes) -> bytes:
        if self._local.ended_at is not None:
            return lines.refusal(Forbidden("The attempt is over."))
        try:
            progress = lines.read(line)
        except DulyError as error:
            return lines.refusal(error)
        self._hear(self._local.ref, progress)
        return lines.OK

    def _write(self, pause: float = 0.0) -> None:
        """Send the answers; only then is anything more read."""
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
        if self._is_last:
            self.close()
        elif pause:
            self._loop.call_later(pause, self._listen)
        else:
            self._listen()


def _send_away(connected: socket.socket, error: DulyError) -> None:
    with connected, suppress(OSError):
        connected.send(lines.refusal(error))
