"""The supervisor process: starts an agent's tasks, and enforces their lease and execution cap.

It is a process of its own, so that neither a busy agent nor a stopped one keeps an attempt
running beyond its cap or its lease. It reads the output of tasks, ends them when it must,
and sends an exit event only when no process of the attempt is left. When the agent is
gone, it kills everything and exits.

It is a single-threaded event loop that never waits for a disk: blocking work is done by the
spawners (`spawner_pool.py`). Commands and events are messages over a socket
(`supervisor_link.py` is the agent's end).

Decision: docs/adr/0005-supervisor-and-spawners.md.
"""

import errno
import os
import select
import signal
import socket
from typing import Any

from duly.agent.limits.cgroup import Cgroup, Layout, Limits
from duly.agent.limits.cgroup_pool import CgroupPool
from duly.agent.limits.memory_sampler import SAMPLE_INTERVAL_SECONDS, find_over_limit
from duly.agent.supervision.attempt import MAX_RECHECK_SECONDS, SupervisedAttempt, describe
from duly.agent.supervision.attempt_timers import AttemptTimers
from duly.agent.supervision.frames import Connection
from duly.agent.supervision.freeze_limit import MAX_FROZEN_SECONDS
from duly.agent.supervision.output import Output
from duly.agent.supervision.output_reader import OutputReader
from duly.agent.supervision.process_tree import NoProcesses, ProcessTree, kill_descendants
from duly.agent.supervision.spawner_handle import PendingStart, SpawnerHandle
from duly.agent.supervision.spawner_pool import SpawnerPool
from duly.clock import monotonic


class Supervisor:
    """The supervisor's event loop."""

    def __init__(
        self, link: int, layout: Layout, processes: int, open_files: tuple[int, int], lock: int
    ) -> None:
        self._agent = Connection(socket.socket(fileno=link))
        self._layout = layout
        self._attempts: dict[int, SupervisedAttempt] = {}
        self._by_pid: dict[int, SupervisedAttempt] = {}
        self._timers = AttemptTimers(self._attempts)
        self._trusted_until = float("-inf")
        self._has_lapsed = True
        self._sample_at = float("inf") if layout.limits_memory else 0.0
        self._events: list[Any] = []
        self._wakeup_reader, self._wakeup_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.epoll()
        self._poll.register(self._agent.socket, select.EPOLLIN)
        self._poll.register(self._wakeup_reader, select.EPOLLIN)
        self._outputs = OutputReader(self._poll)
        self._groups = CgroupPool(layout, processes, self._poll)
        self._spawners = SpawnerPool(
            layout, self._groups, open_files, lock, self._poll, self._adopt_orphans
        )

    def run(self) -> None:
        """Serve the agent until it is gone, then kill everything."""
        signal.set_wakeup_fd(self._wakeup_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while self._handle_ready():
            self._run_timers()
            # Nothing starts without a valid lease: it may be running elsewhere by now.
            self._apply_results(self._spawners.flush(may_begin=not self._has_lapsed))
            if self._events:
                self._agent.send(self._events)
                self._events = []
            self._agent.poll_for_room(self._poll)
        self._shut_down()

    def _handle_ready(self) -> bool:
        """Wait for events and handle them; False means that the agent is gone."""
        for fd, _ in self._poll.poll(self._timeout()):
            if fd in self._spawners:
                self._apply_results(self._spawners.receive(fd))
            elif fd == self._agent.socket.fileno():
                self._agent.send()
                commands = self._agent.receive()
                if commands is None:
                    return False
                for verb, subject in commands:
                    self._handle_command(verb, subject)
            elif fd == self._wakeup_reader:
                os.read(self._wakeup_reader, 4096)
                self._reap()
            elif fd in self._outputs:  # The attempt may have ended earlier in this pass.
                self._outputs.read(fd)
            elif (group := self._groups.out_of_memory(fd)) is not None:
                for attempt in [a for a in self._attempts.values() if a.tree is group]:
                    self._end_out_of_memory(attempt)
        return True

    def _handle_command(self, verb: str, subject: Any) -> None:
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
            spawner = self._spawners.choose(spec["tenant"], spec["disk"])
        except OSError as error:
            for fd in pipe:
                os.close(fd)
            self._events.append(["exited", {"id": spec["id"], "failure": ["fork", error.errno]}])
            return
        os.set_blocking(reading, False)
        output = Output(reading, spec["spool"], spec["log_limit"])
        is_grouped = bool(self._layout.folders)
        tree = NoProcesses() if is_grouped else ProcessTree(spec["marker"], spec["own_uid"])
        self._attempts[spec["id"]] = SupervisedAttempt(spec, tree, output, spawner)
        spawner.add(PendingStart(spec["id"], Limits(*spec["limits"]), spec["begin"], writing))

    def _measure(self, identities: list[int]) -> None:
        """Send the start time and the usage so far of running attempts."""
        running = [
            attempt
            for identity in identities
            if (attempt := self._attempts.get(identity)) is not None and attempt.pid
        ]
        samples = [[a.id, a.started_at, *a.tree.usage_so_far()] for a in running]
        self._events.append(["measured", samples])

    def _apply_results(self, results: list[Any]) -> None:
        begun = []
        for what, identity, *details in results:
            attempt = self._attempts[identity]
            if what == "begun":
                self._on_started(attempt, *details)
                begun.append(attempt)
            elif what == "ended":
                self._on_ended(attempt, *details)
            elif what == "grouped":
                (attempt.tree,) = details
            elif what == "unknown":
                self._end_unknown(attempt)
            else:
                attempt.failure, attempt.ended_at = (details[0], details[1]), monotonic()
                self._settle(attempt)
        for attempt in begun:
            if attempt.code is None:
                self._outputs.add(attempt)

    def _on_started(self, attempt: SupervisedAttempt, pid: int, at: float) -> None:
        """Record that an attempt runs, and carry out what has waited for its process."""
        attempt.pid, attempt.started_at = pid, at
        cap = at + attempt.spec["execution_cap"]
        self._timers.call_at(cap, attempt.id, lambda: self._cap(attempt))
        if isinstance(attempt.tree, ProcessTree):
            attempt.tree.leader = pid
        if attempt.frozen_at is not None:
            attempt.tree.freeze()
        if attempt.kill_on_start:
            attempt.tree.kill()
        elif attempt.stopped:
            attempt.spawner.terminate(attempt.id)

    def _on_ended(
        self,
        attempt: SupervisedAttempt,
        code: int,
        cpu: float,
        peak: int | None,
        at: float,
        is_workspace_empty: bool = False,
        disk_usage: tuple[Any, ...] | None = None,
    ) -> None:
        attempt.code, attempt.ended_at = code, at
        attempt.cpu, attempt.peak, attempt.is_workspace_empty = cpu, peak, is_workspace_empty
        attempt.disk_usage = disk_usage
        self._settle(attempt)

    def _adopt_orphans(self, spawner: SpawnerHandle, results: list[Any]) -> None:
        """Adopt the children of a dead spawner, which the kernel has reparented to us."""
        self._apply_results(results)
        for attempt in list(self._attempts.values()):
            if attempt.spawner is spawner and attempt.stopped and self._withdraw(attempt):
                continue  # It waits for a spawner again, and was to be ended once it started.
            if (
                attempt.spawner is spawner
                and attempt.pid
                and attempt.code is None
                and attempt.pid not in self._by_pid
            ):
                self._adopt(attempt)
        os.write(self._wakeup_writer, b"\0")  # An adopted child may have exited before.

    def _adopt(self, attempt: SupervisedAttempt) -> None:
        try:
            os.waitid(os.P_PID, attempt.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # The spawner had reaped it, and its exit status is lost.
            self._end_unknown(attempt)
            return
        self._by_pid[attempt.pid] = attempt
        if attempt.stopped:
            os.killpg(attempt.pid, signal.SIGTERM)

    def _end_unknown(self, attempt: SupervisedAttempt) -> None:
        """End an attempt that may have run, but whose outcome was lost with its spawner."""
        attempt.is_unknown, attempt.ended_at = True, monotonic()
        self._settle(attempt)

    def _terminate(self, attempt: SupervisedAttempt) -> None:
        if attempt.code is not None or attempt.stopped or self._withdraw(attempt):
            return
        attempt.stopped = True
        if attempt.pid in self._by_pid:
            os.killpg(attempt.pid, signal.SIGTERM)
        elif attempt.pid:
            # Only its parent, the spawner, knows that the pid has not been reused.
            attempt.spawner.terminate(attempt.id)
        killing = monotonic() + attempt.spec["grace"]
        self._timers.call_at(killing, attempt.id, lambda: self._kill(attempt))

    def _withdraw(self, attempt: SupervisedAttempt) -> bool:
        """End an attempt that still waits for a spawner; False if it does not wait."""
        if attempt.pid or not attempt.spawner.withdraw(attempt.id):
            return False
        attempt.never_begun, attempt.ended_at = True, monotonic()
        self._settle(attempt)
        return True

    def _kill(self, attempt: SupervisedAttempt) -> None:
        if self._withdraw(attempt):
            return
        if attempt.code is None:
            attempt.stopped = True
        if attempt.pid or attempt.failure is not None or attempt.is_unknown:
            attempt.tree.kill()
        else:
            attempt.kill_on_start = True

    def _cap(self, attempt: SupervisedAttempt) -> None:
        if attempt.code is None and not attempt.stopped:
            attempt.capped = True
            self._terminate(attempt)

    def _end_out_of_memory(self, attempt: SupervisedAttempt) -> None:
        """Kill the whole attempt; the kernel may have killed a single process of it."""
        attempt.is_out_of_memory = True
        self._kill(attempt)

    def _trust(self, until: float) -> None:
        """Extend the lease and thaw all attempts; those that were lost were killed before."""
        self._trusted_until = until
        self._has_lapsed = False
        for attempt in self._attempts.values():
            self._thaw(attempt)

    def _freeze(self, attempt: SupervisedAttempt) -> None:
        if attempt.frozen_at is not None or attempt.code is not None:
            return
        if not self._layout.can_freeze:
            self._kill(attempt)
            return
        attempt.frozen_at = monotonic()
        if attempt.pid:
            attempt.tree.freeze()
        self._timers.call_at(
            attempt.frozen_at + MAX_FROZEN_SECONDS,
            attempt.id,
            lambda: self._kill_if_still_frozen(attempt),
        )

    def _thaw(self, attempt: SupervisedAttempt) -> None:
        if attempt.frozen_at is not None:
            attempt.frozen_at = None
            if attempt.pid:
                attempt.tree.thaw()

    def _kill_if_still_frozen(self, attempt: SupervisedAttempt) -> None:
        if attempt.frozen_at is not None and monotonic() - attempt.frozen_at >= MAX_FROZEN_SECONDS:
            self._kill(attempt)

    def _timeout(self) -> float:
        """Return the seconds until the next timer is due; -1 if there is none."""
        if not self._attempts:
            return -1
        due = min(
            self._timers.next_due(),
            self._outputs.flush_at,
            self._outputs.resume_at,
            self._sample_at,
            self._spawners.deadline,
        )
        if not self._has_lapsed:
            due = min(due, self._trusted_until)
        return -1 if due == float("inf") else max(0.0, due - monotonic())

    def _run_timers(self) -> None:
        now = monotonic()
        if now >= self._trusted_until:
            self._has_lapsed = True
            for attempt in list(self._attempts.values()):
                self._freeze(attempt)
        self._spawners.kill_stuck(now)
        if now >= self._timers.next_due():
            self._reap()
            self._timers.run_due(now)
        self._outputs.resume(now)
        if now >= self._outputs.flush_at:
            self._events += self._outputs.flush()
        if now >= self._sample_at:
            self._sample_at = now + SAMPLE_INTERVAL_SECONDS
            for attempt in find_over_limit(self._running()):
                self._end_out_of_memory(attempt)

    def _running(self) -> list[SupervisedAttempt]:
        return [a for a in self._attempts.values() if a.pid and a.code is None]

    def _reap(self) -> None:
        """Reap our own children: spawners, and the orphans of dead spawners."""
        while (pid := find_changed_child()) is not None:
            if pid not in self._by_pid:
                # A spawner, or the orphan of one that has just died. Dead spawners are replaced
                # first: that adopts their orphans, so that the exit status is not lost.
                self._apply_results(self._spawners.replace_dead())
            try:
                _, status, rusage = os.wait4(pid, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                continue  # It was a spawner, which has been reaped by now.
            if os.WIFSTOPPED(status):
                self._spawners.kill_stopped(pid)
            elif (attempt := self._by_pid.pop(pid, None)) is not None:
                cpu = rusage.ru_utime + rusage.ru_stime
                code = os.waitstatus_to_exitcode(status)
                # Its maximum may be that of its dead spawner.
                self._on_ended(attempt, code, cpu, None, monotonic())

    def _settle(self, attempt: SupervisedAttempt) -> None:
        """Send the exit event of an attempt, once none of its processes is left."""
        if not attempt.never_begun and not attempt.tree.is_empty():
            attempt.tree.kill()
            recheck_at = monotonic() + attempt.recheck_seconds
            attempt.recheck_seconds = min(2 * attempt.recheck_seconds, MAX_RECHECK_SECONDS)
            self._timers.call_at(recheck_at, attempt.id, lambda: self._settle(attempt))
            return
        del self._attempts[attempt.id]
        self._outputs.close(attempt)
        self._events.append(["exited", describe(attempt)])
        if isinstance(attempt.tree, Cgroup):
            self._groups.release(attempt.tree)
        elif isinstance(attempt.tree, ProcessTree) and not self._attempts:
            # A process that escaped its tree belonged to an attempt that has ended.
            kill_descendants(self._spawners.pids)

    def _shut_down(self) -> None:
        """Kill all attempts, and return when no process is left."""
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
