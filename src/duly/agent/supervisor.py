"""The process that runs an agent's tasks, and outlives its mistakes.

One per agent, apart from it, so that neither a busy agent nor a stopped one keeps
an attempt running beyond its cap or its lease. It starts tasks, reads what they
write, ends them when it must, and tells of an exit only when nothing of the tree
is left. When the agent is gone, it kills everything and goes, too.

It is a single loop without threads, and imports little: every task begins as a
copy of this process, and a small one is copied fast. Commands and events are lines
of JSON over a socket (`duly.agent.link` is the other end).
"""

# The supervisor imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: S606, SIM105

import fcntl
import heapq
import itertools
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

from duly.agent import child
from duly.agent.cgroup import Group, Layout
from duly.agent.output import Output
from duly.agent.tree import Tree
from duly.clock import monotonic

FROZEN_LIMIT = 300.0
"""Seconds after which a frozen attempt is killed, as the agent does (`duly.agent.state`)."""
FLUSH = 1.0
"""Seconds between two notes that an attempt has written more."""
IDLE_GROUPS = 64
"""How many empty cgroups are kept for the next attempts."""
RETRY = 0.001, 0.1
"""Seconds between two looks at a tree that has been killed: the first pause and the longest."""
NICENESS = -10
"""So that tasks cannot starve us; they themselves run at 0."""


PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


class Attempt:
    """One attempt and its processes."""

    __slots__ = (
        "capped", "code", "ended_at", "failure", "frozen_at", "id", "output", "pause", "pid",
        "rusage", "spec", "started_at", "stopped", "tree",
    )  # fmt: skip

    def __init__(self, spec: dict[str, Any], tree: Group | Tree, output: Output, pid: int) -> None:
        self.id: int = spec["id"]
        self.spec = spec
        self.tree = tree
        self.output = output
        self.pid = pid
        self.started_at = monotonic()
        self.ended_at = 0.0
        self.code: int | None = None
        self.rusage: resource.struct_rusage | None = None
        self.failure: tuple[str, int] | None = None
        self.stopped = False
        self.capped = False
        self.frozen_at: float | None = None
        self.pause = RETRY[0]


class Supervisor:
    """The loop."""

    def __init__(
        self, link: int, layout: Layout, processes: int, open_files: tuple[int, int]
    ) -> None:
        self._link = link
        self._layout = layout
        self._processes = processes
        self._attempts: dict[int, Attempt] = {}
        self._by_pid: dict[int, Attempt] = {}
        self._idle: dict[int, list[Group]] = {}
        self._groups_made = 0
        self._trusted_until = float("-inf")
        self._lapsed = True
        self._timers: list[tuple[float, int, int, Callable[[Attempt], None]]] = []
        self._serial = itertools.count()
        self._written: set[int] = set()
        self._flush_at = float("inf")
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._events: list[Any] = []
        self._poll = select.epoll()
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._failures, failed = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._fixtures = child.Fixtures(null, failed, open_files)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        os.set_blocking(link, False)
        self._poll.register(link, select.EPOLLIN)
        self._poll.register(self._woken, select.EPOLLIN)
        self._outputs: dict[int, Attempt] = {}

    def run(self) -> None:
        """Serve the agent until it is gone, then leave nothing behind."""
        while True:
            for fd, ready in self._poll.poll(self._timeout()):
                if fd == self._link:
                    if ready & select.EPOLLOUT:
                        self._flush_events()
                    if ready & ~select.EPOLLOUT and not self._receive():
                        self._shut_down()
                        return
                elif fd == self._woken:
                    os.read(self._woken, 4096)
                    self._reap()
                elif fd in self._outputs:  # else it ended earlier in this round
                    self._read_output(self._outputs[fd])
            self._keep_time()
            self._send()

    # What the agent asks for.

    def _receive(self) -> bool:
        try:
            data = os.read(self._link, 2**20)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        if not data:
            return False
        self._incoming += data
        while (end := self._incoming.find(b"\n")) >= 0:
            line = bytes(self._incoming[:end])
            del self._incoming[: end + 1]
            self._reap()
            for command in json.loads(line):
                self._obey(command)
        return True

    def _obey(self, command: list[Any]) -> None:
        verb, subject = command
        if verb == "start":
            self._start(subject)
            return
        if verb == "trust":
            self._trusted_until = subject
            self._lapsed = False
            return
        attempt = self._attempts.get(subject)
        if attempt is None:
            return
        if verb == "terminate":
            self._terminate(attempt)
        elif verb == "kill":
            self._kill(attempt)
        elif verb == "freeze":
            self._freeze(attempt)
        elif verb == "thaw":
            attempt.frozen_at = None
            attempt.tree.thaw()

    def _start(self, spec: dict[str, Any]) -> None:
        pipe: tuple[int, ...] = ()
        try:
            pipe = reading, writing = os.pipe2(os.O_CLOEXEC)
            tree = self._enclosure(spec)
            pid = child.start(spec, tree, writing, self._fixtures)
        except OSError as error:
            for fd in pipe:
                os.close(fd)
            failure = {"id": spec["id"], "failure": ["fork", error.errno]}
            self._events.append(["exited", failure])
            return
        os.close(writing)
        os.set_blocking(reading, False)
        if isinstance(tree, Tree):
            tree.leader = pid
        attempt = Attempt(spec, tree, Output(reading, spec["spool"], spec["log_limit"]), pid)
        self._attempts[attempt.id] = self._by_pid[pid] = self._outputs[reading] = attempt
        self._poll.register(reading, select.EPOLLIN)
        self._at(attempt.started_at + spec["execution_cap"], attempt, self._cap)

    def _enclosure(self, spec: dict[str, Any]) -> Group | Tree:
        if not self._layout.folders:
            return Tree(spec["marker"], spec["uid"] if spec["own_uid"] else None)
        idle = self._idle.get(spec["memory"])
        if idle:
            return idle.pop()
        self._groups_made += 1
        return Group(self._layout, str(self._groups_made), spec["memory"], self._processes)

    # How attempts are ended and frozen.

    def _terminate(self, attempt: Attempt) -> None:
        if attempt.code is not None or attempt.stopped:
            return
        attempt.stopped = True
        try:
            os.killpg(attempt.pid, signal.SIGTERM)
        except ProcessLookupError:
            # Not a group of its own yet: it is still on its way to exec.
            os.kill(attempt.pid, signal.SIGTERM)
        self._at(monotonic() + attempt.spec["grace"], attempt, self._kill)

    def _kill(self, attempt: Attempt) -> None:
        if attempt.code is None:
            attempt.stopped = True
        attempt.tree.kill()

    def _cap(self, attempt: Attempt) -> None:
        if attempt.code is None and not attempt.stopped:
            attempt.capped = True
            self._terminate(attempt)

    def _freeze(self, attempt: Attempt) -> None:
        if attempt.frozen_at is not None or attempt.code is not None:
            return
        if not self._layout.can_freeze:
            self._kill(attempt)
            return
        attempt.frozen_at = monotonic()
        attempt.tree.freeze()
        self._at(attempt.frozen_at + FROZEN_LIMIT, attempt, self._give_up)

    def _give_up(self, attempt: Attempt) -> None:
        if attempt.frozen_at is not None and monotonic() - attempt.frozen_at >= FROZEN_LIMIT:
            self._kill(attempt)

    # Time.

    def _at(self, when: float, attempt: Attempt, action: Callable[[Attempt], None]) -> None:
        heapq.heappush(self._timers, (when, next(self._serial), attempt.id, action))
        if len(self._timers) > 8 * len(self._attempts) + 100:
            self._timers = [timer for timer in self._timers if timer[2] in self._attempts]
            heapq.heapify(self._timers)

    def _timeout(self) -> float:
        """Return the seconds until something has to be done by the clock; -1 if nothing has."""
        if not self._attempts:
            return -1
        due = min(self._timers[0][0] if self._timers else float("inf"), self._flush_at)
        if not self._lapsed:
            due = min(due, self._trusted_until)
        return -1 if due == float("inf") else max(0.0, due - monotonic())

    def _keep_time(self) -> None:
        now = monotonic()
        if now >= self._trusted_until:
            self._lapsed = True
            for attempt in list(self._attempts.values()):
                self._freeze(attempt)
        if self._timers and self._timers[0][0] <= now:
            self._reap()
        while self._timers and self._timers[0][0] <= now:
            _, _, identity, action = heapq.heappop(self._timers)
            due = self._attempts.get(identity)
            if due is not None:
                action(due)
        if now >= self._flush_at:
            self._tell_of_output()

    # What tasks write.

    def _read_output(self, attempt: Attempt) -> None:
        before = attempt.output.size
        if not attempt.output.read():
            self._poll.unregister(attempt.output.fd)
            del self._outputs[attempt.output.fd]
        elif attempt.output.size > before:
            if not self._written:
                self._flush_at = monotonic() + FLUSH
            self._written.add(attempt.id)

    def _tell_of_output(self) -> None:
        for identity in self._written:
            attempt = self._attempts.get(identity)
            if attempt is not None:
                attempt.output.spill()
                self._events.append(["output", [identity, attempt.output.size]])
        self._written.clear()
        self._flush_at = float("inf")

    # How attempts end.

    def _reap(self) -> None:
        while True:
            try:
                pid, status, rusage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            attempt = self._by_pid.pop(pid, None)
            if attempt is not None:
                attempt.code = os.waitstatus_to_exitcode(status)
                attempt.rusage = rusage
                attempt.ended_at = monotonic()
                self._settle(attempt)

    def _settle(self, attempt: Attempt) -> None:
        """Finish an attempt whose main process has ended, once nothing else of it is left."""
        if not attempt.tree.is_empty():
            attempt.tree.kill()
            self._at(monotonic() + attempt.pause, attempt, self._settle)
            attempt.pause = min(2 * attempt.pause, RETRY[1])
            return
        del self._attempts[attempt.id]
        attempt.output.drain()
        if self._outputs.pop(attempt.output.fd, None) is not None:
            self._poll.unregister(attempt.output.fd)
        attempt.output.close()
        self._read_failures(attempt)
        self._events.append(["exited", self._describe(attempt)])
        if isinstance(attempt.tree, Group):
            self._give_back(attempt.tree)

    def _read_failures(self, attempt: Attempt) -> None:
        # Written before the exit that we have just seen; one line is read in one piece.
        if attempt.code != 127:
            return
        try:
            lines = os.read(self._failures, 65536).decode().splitlines()
        except BlockingIOError:
            return
        for line in lines:
            identity, step, number = line.split()
            failed = attempt if attempt.id == int(identity) else self._attempts.get(int(identity))
            if failed is not None:
                failed.failure = (step, int(number))

    def _describe(self, attempt: Attempt) -> dict[str, Any]:
        measured = attempt.tree.measure()
        rusage = attempt.rusage
        cpu, peak = measured.cpu_seconds, measured.peak_memory
        if rusage is not None:
            cpu = rusage.ru_utime + rusage.ru_stime if cpu is None else cpu
            peak = rusage.ru_maxrss * 1024 if peak is None else peak
        inline = attempt.output.inline
        return {
            "id": attempt.id,
            "code": attempt.code,
            "stopped": attempt.stopped,
            "capped": attempt.capped,
            "out_of_memory": measured.out_of_memory,
            "failure": attempt.failure,
            "started_at": attempt.started_at,
            "ended_at": attempt.ended_at,
            "cpu_seconds": cpu,
            "peak_memory": peak,
            "log_size": attempt.output.size,
            "log": None if inline is None else inline.decode("latin-1"),
        }

    def _give_back(self, group: Group) -> None:
        idle = self._idle.setdefault(group.memory, [])
        if group.renew() and sum(map(len, self._idle.values())) < IDLE_GROUPS:
            idle.append(group)
        else:
            group.remove()

    # The way back, and the end.

    def _send(self) -> None:
        if self._events:
            self._outgoing += json.dumps(self._events).encode() + b"\n"
            self._events.clear()
            self._flush_events()

    def _flush_events(self) -> None:
        try:
            sent = os.write(self._link, self._outgoing) if self._outgoing else 0
        except BlockingIOError:
            sent = 0
        except BrokenPipeError:
            return  # The end of the stream is seen where it is read.
        del self._outgoing[:sent]
        wanted = select.EPOLLIN | (select.EPOLLOUT if self._outgoing else 0)
        self._poll.modify(self._link, wanted)

    def _shut_down(self) -> None:
        """Kill everything, and go when it is gone."""
        for attempt in self._attempts.values():
            attempt.tree.kill()
        pause = select.poll()
        while self._attempts:
            self._reap()
            for attempt in list(self._attempts.values()):
                if attempt.code is not None:
                    self._settle(attempt)
                else:
                    attempt.tree.kill()
            if self._attempts:
                pause.poll(5)
        for groups in self._idle.values():
            for group in groups:
                group.remove()


def prepare() -> None:
    """Set what every task inherits for life, and become the lean process that runs them.

    Both settings survive the exec, and the library that is needed to make them does not.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    for option in (PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS):
        if libc.prctl(option, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
    os.execv(sys.executable, [*sys.orig_argv[:-2], "main", sys.orig_argv[-1]])


def main() -> None:
    """Run the supervisor as the last argument says: a JSON object made by `duly.agent.link`."""
    config = json.loads(sys.argv[-1])
    os.set_inheritable(config["link"], False)
    os.umask(0o022)
    os.chdir("/")
    open_files = _limit(config["processes"], config["own_uids"])
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    except PermissionError:
        pass
    lock = os.open(config["lock"], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    Supervisor(config["link"], Layout(*config["layout"]), config["processes"], open_files).run()


def _limit(processes: int, own_uids: bool) -> tuple[int, int]:
    """Set the limits that tasks inherit; return those on open files that they should have."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if own_uids:
        # Per user id; root itself, as which we run, is not bound by it.
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard
