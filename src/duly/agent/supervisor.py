"""The process that runs an agent's tasks, and outlives its mistakes.

One per agent, apart from it, so that neither a busy agent nor a stopped one keeps
an attempt running beyond its cap or its lease. It starts tasks, reads what they
write, ends them when it must, and tells of an exit only when nothing of the tree
is left. When the agent is gone, it kills everything and goes, too.

It is a single loop without threads, and imports little: every task begins as a
copy of this process, and a small one is copied fast. Commands and events are lines
of JSON over a socket (`duly.agent.link` is the other end).
"""

import os
import resource
import select
import signal
from typing import Any

from duly.agent import child
from duly.agent.cgroup import Group, Layout
from duly.agent.groups import Groups
from duly.agent.lines import Lines
from duly.agent.output import Output
from duly.agent.timers import Timers
from duly.agent.tree import Tree, kill_descendants
from duly.clock import monotonic

FROZEN_LIMIT = 300.0
"""Seconds after which a frozen attempt is killed, as the agent does (`duly.agent.state`)."""
FLUSH = 1.0
"""Seconds between two notes that an attempt has written more."""
FIRST_LOOK, LONGEST_LOOK = 0.001, 0.1
"""Seconds between two looks at a tree that has been killed."""


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
        self.pause = FIRST_LOOK


class Supervisor:
    """The loop."""

    def __init__(
        self, link: int, layout: Layout, processes: int, open_files: tuple[int, int]
    ) -> None:
        self._lines = Lines(link)
        self._layout = layout
        self._groups = Groups(layout, processes)
        self._attempts: dict[int, Attempt] = {}
        self._by_pid: dict[int, Attempt] = {}
        self._outputs: dict[int, Attempt] = {}
        self._timers = Timers(self._attempts)
        self._trusted_until = float("-inf")
        self._lapsed = True
        self._written: set[int] = set()
        self._flush_at = float("inf")
        self._events: list[Any] = []
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._failures, failed = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._fixtures = child.Fixtures(null, failed, open_files)
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.epoll()
        self._poll.register(link, select.EPOLLIN)
        self._poll.register(self._woken, select.EPOLLIN)

    def run(self) -> None:
        """Serve the agent until it is gone, then leave nothing behind."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while self._serve():
            self._keep_time()
            if self._events:
                self._lines.send(self._events)
                self._events.clear()
                self._wait_for_agent()
        self._shut_down()

    def _serve(self) -> bool:
        """Wait for something to happen and deal with it; False means that the agent is gone."""
        for fd, ready in self._poll.poll(self._timeout()):
            if fd == self._woken:
                os.read(self._woken, 4096)
                self._reap()
            elif fd != self._lines.fd:
                if fd in self._outputs:  # It may have ended earlier in this round.
                    self._read_output(self._outputs[fd])
            else:
                if ready & select.EPOLLOUT:
                    self._lines.flush()
                    self._wait_for_agent()
                commands = self._lines.receive()
                if commands is None:
                    return False
                self._reap()
                for verb, subject in commands:
                    self._obey(verb, subject)
        return True

    def _wait_for_agent(self) -> None:
        wanted = select.EPOLLIN | (select.EPOLLOUT if self._lines.is_full else 0)
        self._poll.modify(self._lines.fd, wanted)

    def _obey(self, verb: str, subject: Any) -> None:
        if verb == "start":
            self._start(subject)
        elif verb == "trust":
            self._trust(subject)
        elif (attempt := self._attempts.get(subject)) is not None:
            if verb == "terminate":
                self._terminate(attempt)
            elif verb == "kill":
                self._kill(attempt)
            elif verb == "freeze":
                self._freeze(attempt)
            elif verb == "thaw":
                self._thaw(attempt)

    def _start(self, spec: dict[str, Any]) -> None:
        pipe: tuple[int, ...] = ()
        try:
            pipe = reading, writing = os.pipe2(os.O_CLOEXEC)
            tree = self._enclose(spec)
            pid = child.start(spec, tree, writing, self._fixtures)
        except OSError as error:
            for fd in pipe:
                os.close(fd)
            self._events.append(["exited", {"id": spec["id"], "failure": ["fork", error.errno]}])
            return
        os.close(writing)
        os.set_blocking(reading, False)
        if isinstance(tree, Tree):
            tree.leader = pid
        attempt = Attempt(spec, tree, Output(reading, spec["spool"], spec["log_limit"]), pid)
        self._attempts[attempt.id] = self._by_pid[pid] = self._outputs[reading] = attempt
        self._poll.register(reading, select.EPOLLIN)
        cap = attempt.started_at + spec["execution_cap"]
        self._timers.at(cap, attempt.id, lambda: self._cap(attempt))

    def _enclose(self, spec: dict[str, Any]) -> Group | Tree:
        if self._layout.folders:
            return self._groups.take(spec["memory"])
        return Tree(spec["marker"], spec["uid"] if spec["own_uid"] else None)

    def _terminate(self, attempt: Attempt) -> None:
        if attempt.code is not None or attempt.stopped:
            return
        attempt.stopped = True
        try:
            os.killpg(attempt.pid, signal.SIGTERM)
        except ProcessLookupError:
            # Not a group of its own yet: it is still on its way to exec.
            os.kill(attempt.pid, signal.SIGTERM)
        killing = monotonic() + attempt.spec["grace"]
        self._timers.at(killing, attempt.id, lambda: self._kill(attempt))

    def _kill(self, attempt: Attempt) -> None:
        if attempt.code is None:
            attempt.stopped = True
        attempt.tree.kill()

    def _cap(self, attempt: Attempt) -> None:
        if attempt.code is None and not attempt.stopped:
            attempt.capped = True
            self._terminate(attempt)

    def _trust(self, until: float) -> None:
        """Let everything run until then; what is not ours any more was killed before."""
        self._trusted_until = until
        self._lapsed = False
        for attempt in self._attempts.values():
            self._thaw(attempt)

    def _freeze(self, attempt: Attempt) -> None:
        if attempt.frozen_at is not None or attempt.code is not None:
            return
        if not self._layout.can_freeze:
            self._kill(attempt)
            return
        attempt.frozen_at = monotonic()
        attempt.tree.freeze()
        self._timers.at(
            attempt.frozen_at + FROZEN_LIMIT, attempt.id, lambda: self._give_up(attempt)
        )

    def _thaw(self, attempt: Attempt) -> None:
        if attempt.frozen_at is not None:
            attempt.frozen_at = None
            attempt.tree.thaw()

    def _give_up(self, attempt: Attempt) -> None:
        if attempt.frozen_at is not None and monotonic() - attempt.frozen_at >= FROZEN_LIMIT:
            self._kill(attempt)

    def _timeout(self) -> float:
        """Return the seconds until something has to be done by the clock; -1 if nothing has."""
        if not self._attempts:
            return -1
        due = min(self._timers.next(), self._flush_at)
        if not self._lapsed:
            due = min(due, self._trusted_until)
        return -1 if due == float("inf") else max(0.0, due - monotonic())

    def _keep_time(self) -> None:
        now = monotonic()
        if now >= self._trusted_until:
            self._lapsed = True
            for attempt in self._attempts.values():
                self._freeze(attempt)
        if now >= self._timers.next():
            self._reap()
            self._timers.run(now)
        if now >= self._flush_at:
            self._tell_of_output()

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
            again = monotonic() + attempt.pause
            attempt.pause = min(2 * attempt.pause, LONGEST_LOOK)
            self._timers.at(again, attempt.id, lambda: self._settle(attempt))
            return
        del self._attempts[attempt.id]
        attempt.output.drain()
        if self._outputs.pop(attempt.output.fd, None) is not None:
            self._poll.unregister(attempt.output.fd)
        attempt.output.close()
        if attempt.code == child.NEVER_BEGAN:
            self._read_failures(attempt)
        self._events.append(["exited", describe(attempt)])
        if isinstance(attempt.tree, Group):
            self._groups.give_back(attempt.tree)
        elif not self._attempts:
            kill_descendants()  # Whoever hid from us belonged to one of those that ended.

    def _read_failures(self, attempt: Attempt) -> None:
        # Written before the exit that we have seen; several may have failed at once.
        try:
            lines = os.read(self._failures, 65536).decode().splitlines()
        except BlockingIOError:
            return
        for line in lines:
            identity, step, number = line.split()
            failed = attempt if attempt.id == int(identity) else self._attempts.get(int(identity))
            if failed is not None:
                failed.failure = (step, int(number))

    def _shut_down(self) -> None:
        """Kill everything, and go when it is gone."""
        pause = select.poll()
        while self._attempts:
            self._reap()
            for attempt in list(self._attempts.values()):
                if attempt.code is None:
                    attempt.tree.kill()
                else:
                    self._settle(attempt)
            if self._attempts:
                pause.poll(5)
        self._groups.close()
        if not self._layout.folders:
            kill_descendants()


def describe(attempt: Attempt) -> dict[str, Any]:
    """Return what the agent is told of an attempt that has ended."""
    measured = attempt.tree.measure()
    cpu, peak, rusage = measured.cpu_seconds, measured.peak_memory, attempt.rusage
    if rusage is not None:
        cpu = rusage.ru_utime + rusage.ru_stime if cpu is None else cpu
        peak = rusage.ru_maxrss * 1024 if peak is None else peak
    inline, notice = attempt.output.inline, attempt.output.notice
    size = attempt.output.size + len(notice)
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
        "log_size": size if inline is None else len(inline),
        "log": None if inline is None else inline.decode("latin-1"),
        "log_notice": notice.decode(),
    }
