"""The process that runs an agent's tasks, and outlives its mistakes.

One per agent, apart from it, so that neither a busy agent nor a stopped one keeps
an attempt running beyond its cap or its lease. It starts tasks, reads what they
write, ends them when it must, and tells of an exit only when nothing of the tree
is left. When the agent is gone, it kills everything and goes, too.

It is a single loop without threads that never waits for a disk: what may have to is
the spawners' (`duly.agent.spawners`). Commands and events are messages over a socket
(`duly.agent.link` is the other end).
"""

import errno
import os
import select
import signal
import socket
from typing import Any

from duly.agent.attempt import LONGEST_LOOK, Attempt, describe
from duly.agent.cgroup import Group, Layout, Limits
from duly.agent.frames import Frames
from duly.agent.frozen_limit import FROZEN_LIMIT
from duly.agent.groups import Groups
from duly.agent.memory_sampler import SAMPLE_INTERVAL, find_over_limit
from duly.agent.output import Output
from duly.agent.outputs import Outputs
from duly.agent.spawners import Spawners
from duly.agent.starter import Start, Starter
from duly.agent.timers import Timers
from duly.agent.tree import Nowhere, Tree, kill_descendants
from duly.clock import monotonic


class Supervisor:
    """The loop."""

    def __init__(
        self, link: int, layout: Layout, processes: int, open_files: tuple[int, int], lock: int
    ) -> None:
        self._agent = Frames(socket.socket(fileno=link))
        self._layout = layout
        self._attempts: dict[int, Attempt] = {}
        self._by_pid: dict[int, Attempt] = {}
        self._timers = Timers(self._attempts)
        self._trusted_until = float("-inf")
        self._lapsed = True
        self._sample_at = float("inf") if layout.limits_memory else 0.0
        self._events: list[Any] = []
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.epoll()
        self._poll.register(self._agent.socket, select.EPOLLIN)
        self._poll.register(self._woken, select.EPOLLIN)
        self._outputs = Outputs(self._poll)
        self._groups = Groups(layout, processes, self._poll)
        self._spawners = Spawners(
            layout, self._groups, open_files, lock, self._poll, self._take_over
        )

    def run(self) -> None:
        """Serve the agent until it is gone, then leave nothing behind."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while self._serve():
            self._keep_time()
            # Without a lease nothing more is begun: it may be running elsewhere by now.
            self._take_in(self._spawners.flush(may_begin=not self._lapsed))
            if self._events:
                self._agent.try_to_send(self._events)
                self._events = []
            self._agent.wait_for_room(self._poll)
        self._shut_down()

    def _serve(self) -> bool:
        """Wait for something to happen and deal with it; False means that the agent is gone."""
        for fd, _ in self._poll.poll(self._timeout()):
            if fd in self._spawners:
                self._take_in(self._spawners.hear(fd))
            elif fd == self._agent.socket.fileno():
                self._agent.try_to_send()
                commands = self._agent.receive()
                if commands is None:
                    return False
                for verb, subject in commands:
                    self._obey(verb, subject)
            elif fd == self._woken:
                os.read(self._woken, 4096)
                self._reap()
            elif fd in self._outputs:  # It may have ended earlier in this round.
                self._outputs.read(fd)
            elif (group := self._groups.out_of_memory(fd)) is not None:
                for attempt in [one for one in self._attempts.values() if one.tree is group]:
                    self._end_out_of_memory(attempt)
        return True

    def _obey(self, verb: str, subject: Any) -> None:
        if verb == "start":
            self._start(subject)
        elif verb == "trust":
            self._trust(subject)
        elif verb == "measure":
            self._measure(subject)
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
            starter = self._spawners.choose(spec["tenant"], spec["disk"])
        except OSError as error:
            for fd in pipe:
                os.close(fd)
            self._events.append(["exited", {"id": spec["id"], "failure": ["fork", error.errno]}])
            return
        os.set_blocking(reading, False)
        output = Output(reading, spec["spool"], spec["log_limit"])
        is_grouped = bool(self._layout.folders)
        tree = Nowhere() if is_grouped else Tree(spec["marker"], spec["own_uid"])
        self._attempts[spec["id"]] = Attempt(spec, tree, output, starter)
        starter.add(Start(spec["id"], Limits(*spec["limits"]), spec["begin"], writing))

    def _measure(self, identities: list[int]) -> None:
        """Tell since when attempts run, and what they have used by now."""
        running = [
            attempt
            for identity in identities
            if (attempt := self._attempts.get(identity)) is not None and attempt.pid
        ]
        told = [[one.id, one.started_at, *one.tree.used()] for one in running]
        self._events.append(["measured", told])

    def _take_in(self, results: list[Any]) -> None:
        begun = []
        for what, identity, *details in results:
            attempt = self._attempts[identity]
            if what == "begun":
                self._begin(attempt, *details)
                begun.append(attempt)
            elif what == "ended":
                self._end(attempt, *details)
            elif what == "enclosed":
                (attempt.tree,) = details
            elif what == "unknown":
                self._give_up_on_outcome(attempt)
            else:
                attempt.failure, attempt.ended_at = (details[0], details[1]), monotonic()
                self._settle(attempt)
        for attempt in begun:
            if attempt.code is None:
                self._outputs.add(attempt)

    def _begin(self, attempt: Attempt, pid: int, at: float) -> None:
        """Take note that an attempt runs, and do what has waited for that."""
        attempt.pid, attempt.started_at = pid, at
        cap = at + attempt.spec["execution_cap"]
        self._timers.at(cap, attempt.id, lambda: self._cap(attempt))
        if isinstance(attempt.tree, Tree):
            attempt.tree.leader = pid
        if attempt.frozen_at is not None:
            attempt.tree.freeze()
        if attempt.doomed:
            attempt.tree.kill()
        elif attempt.stopped:
            attempt.starter.terminate(attempt.id)

    def _end(
        self,
        attempt: Attempt,
        code: int,
        cpu: float,
        peak: int,
        at: float,
        is_bare: bool = False,
        disk_usage: tuple[Any, ...] | None = None,
    ) -> None:
        attempt.code, attempt.ended_at = code, at
        attempt.cpu, attempt.peak, attempt.is_bare = cpu, peak, is_bare
        attempt.disk_usage = disk_usage
        self._settle(attempt)

    def _take_over(self, starter: Starter, results: list[Any]) -> None:
        """Take over what a dead spawner leaves: its children are ours now."""
        self._take_in(results)
        for attempt in list(self._attempts.values()):
            if attempt.starter is starter and attempt.stopped and self._withdraw(attempt):
                continue  # It waits again, and was to be ended when it would have begun.
            if (
                attempt.starter is starter
                and attempt.pid
                and attempt.code is None
                and attempt.pid not in self._by_pid
            ):
                self._adopt(attempt)
        os.write(self._wake, b"\0")  # Those that we have adopted may have ended before.

    def _adopt(self, attempt: Attempt) -> None:
        try:
            os.waitid(os.P_PID, attempt.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # It had ended, and how was known to the spawner only.
            self._give_up_on_outcome(attempt)
            return
        self._by_pid[attempt.pid] = attempt
        if attempt.stopped:
            os.killpg(attempt.pid, signal.SIGTERM)

    def _give_up_on_outcome(self, attempt: Attempt) -> None:
        """End an attempt that may have run, or ended, in a way that nobody can tell any more."""
        attempt.is_unknown, attempt.ended_at = True, monotonic()
        self._settle(attempt)

    def _terminate(self, attempt: Attempt) -> None:
        if attempt.code is not None or attempt.stopped or self._withdraw(attempt):
            return
        attempt.stopped = True
        if attempt.pid in self._by_pid:
            os.killpg(attempt.pid, signal.SIGTERM)
        elif attempt.pid:
            # Only the spawner knows whether this process still has its number.
            attempt.starter.terminate(attempt.id)
        killing = monotonic() + attempt.spec["grace"]
        self._timers.at(killing, attempt.id, lambda: self._kill(attempt))

    def _withdraw(self, attempt: Attempt) -> bool:
        """End an attempt that waits for a spawner, so that it never begins."""
        if attempt.pid or not attempt.starter.withdraw(attempt.id):
            return False
        attempt.never_begun, attempt.ended_at = True, monotonic()
        self._settle(attempt)
        return True

    def _kill(self, attempt: Attempt) -> None:
        if self._withdraw(attempt):
            return
        if attempt.code is None:
            attempt.stopped = True
        if attempt.pid or attempt.failure is not None or attempt.is_unknown:
            attempt.tree.kill()
        else:
            attempt.doomed = True

    def _cap(self, attempt: Attempt) -> None:
        if attempt.code is None and not attempt.stopped:
            attempt.capped = True
            self._terminate(attempt)

    def _end_out_of_memory(self, attempt: Attempt) -> None:
        """End all of an attempt; the kernel may have killed a single process of it."""
        attempt.is_out_of_memory = True
        self._kill(attempt)

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
        if attempt.pid:
            attempt.tree.freeze()
        self._timers.at(
            attempt.frozen_at + FROZEN_LIMIT, attempt.id, lambda: self._give_up(attempt)
        )

    def _thaw(self, attempt: Attempt) -> None:
        if attempt.frozen_at is not None:
            attempt.frozen_at = None
            if attempt.pid:
                attempt.tree.thaw()

    def _give_up(self, attempt: Attempt) -> None:
        if attempt.frozen_at is not None and monotonic() - attempt.frozen_at >= FROZEN_LIMIT:
            self._kill(attempt)

    def _timeout(self) -> float:
        """Return the seconds until something has to be done by the clock; -1 if nothing has."""
        if not self._attempts:
            return -1
        due = min(
            self._timers.next(),
            self._outputs.flush_at,
            self._outputs.resume_at,
            self._sample_at,
            self._spawners.deadline,
        )
        if not self._lapsed:
            due = min(due, self._trusted_until)
        return -1 if due == float("inf") else max(0.0, due - monotonic())

    def _keep_time(self) -> None:
        now = monotonic()
        if now >= self._trusted_until:
            self._lapsed = True
            for attempt in list(self._attempts.values()):
                self._freeze(attempt)
        self._spawners.kill_stuck(now)
        if now >= self._timers.next():
            self._reap()
            self._timers.run(now)
        self._outputs.resume(now)
        if now >= self._outputs.flush_at:
            self._events += self._outputs.flush()
        if now >= self._sample_at:
            self._sample_at = now + SAMPLE_INTERVAL
            for attempt in find_over_limit(self._running()):
                self._end_out_of_memory(attempt)

    def _running(self) -> list[Attempt]:
        return [one for one in self._attempts.values() if one.pid and one.code is None]

    def _reap(self) -> None:
        """Take in the ends of our own children: the spawners, and what dead spawners have left."""
        while (pid := find_changed_child()) is not None:
            if pid not in self._by_pid:
                # A spawner, or the orphan of one that has just died. That one is buried first:
                # then it is known whose the orphan is, and how it ended is not lost.
                self._take_in(self._spawners.bury_dead())
            try:
                _, status, rusage = os.wait4(pid, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                continue  # It was a spawner, and is buried.
            if os.WIFSTOPPED(status):
                self._spawners.kill_stopped(pid)
            elif (attempt := self._by_pid.pop(pid, None)) is not None:
                cpu = rusage.ru_utime + rusage.ru_stime
                code = os.waitstatus_to_exitcode(status)
                self._end(attempt, code, cpu, rusage.ru_maxrss * 1024, monotonic())

    def _settle(self, attempt: Attempt) -> None:
        """Finish an attempt whose main process has ended, once nothing else of it is left."""
        if not attempt.never_begun and not attempt.tree.is_empty():
            attempt.tree.kill()
            again = monotonic() + attempt.pause
            attempt.pause = min(2 * attempt.pause, LONGEST_LOOK)
            self._timers.at(again, attempt.id, lambda: self._settle(attempt))
            return
        del self._attempts[attempt.id]
        self._outputs.close(attempt)
        self._events.append(["exited", describe(attempt)])
        if isinstance(attempt.tree, Group):
            self._groups.give_back(attempt.tree)
        elif isinstance(attempt.tree, Tree) and not self._attempts:
            # Whoever hid from us belonged to one of those that ended.
            kill_descendants(self._spawners.pids)

    def _shut_down(self) -> None:
        """Kill everything, and go when it is gone."""
        self._spawners.close()
        pause = select.poll()
        while self._attempts:
            self._reap()
            for attempt in list(self._attempts.values()):
                if not attempt.pid and attempt.failure is None:
                    attempt.failure = "start", errno.ECANCELED  # No spawner has touched it.
                if attempt.code is None and attempt.failure is None and not attempt.is_unknown:
                    attempt.tree.kill()
                else:
                    self._settle(attempt)
            if self._attempts:
                pause.poll(5)
        self._groups.close()
        if not self._layout.folders:
            kill_descendants(set())


def find_changed_child() -> int | None:
    """Return a child that has ended or was stopped, without reaping it; None if there is none."""
    try:
        changed = os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if changed is None else changed.si_pid
