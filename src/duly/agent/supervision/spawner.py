"""The spawner process, a child of the supervisor: starts tasks and waits for them.

A task is started with posix_spawn, which copies nothing: the spawner itself takes on
what the task inherits (cgroup, limits, working directory, user) for the moment of the
start. It keeps root in its saved user id, which the new process loses at exec.

During that moment the task's user could signal the spawner or change its priority. All
signals that can be blocked are blocked; one that cannot be kills a spawner, which the
supervisor replaces at once (`spawner_handle.py`).
"""

# Imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: PTH102, PTH106, PTH116, SIM105

import errno
import os
import resource
import select
import signal

# signal.pthread_sigmask makes a name of each of 64 signals, which takes longer than all the rest.
from _signal import pthread_sigmask as set_mask  # type: ignore[import-not-found]
from collections import deque
from itertools import islice
from typing import Any, NamedTuple

from duly.agent.limits.disk_usage import measure
from duly.agent.preparation.workspace_pool import reclaim
from duly.agent.supervision.frames import Connection
from duly.agent.supervision.task_input import open_input
from duly.clock import monotonic

START_UNDER_WAY = 1
"""The shared state of a start in progress: 0 before, then this, then the process id."""
SPAWNER_CGROUP = "spawner"
"""The spawners' own cgroup, beside those of the attempts, for when they are in no other."""
MAX_STARTS_PER_BATCH = 8
"""Tasks that are started before their results are sent to the supervisor."""
MAX_OPEN_CGROUP_FILES = 600
"""Open `cgroup.procs` files that are cached, but at most half of the limit on open files."""
CHILD_SIGNALS = {signal.SIGCHLD}
RESET_SIGNALS = tuple(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
"""Signals that tasks get with default handlers. Resetting all of them is cheaper: otherwise the C
library queries each handler in the new process first, one system call per signal."""
SCHEDULING_POLICY, SCHEDULING_PRIORITY = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0)
"""The spawner's own scheduling, which tasks do not inherit."""
IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "ppc64le": 273, "s390x": 282}
"""System call numbers of ioprio_set, for which the C library has no wrapper."""
IOPRIO_WHO_PROCESS = 1
WORKSPACE_READY, WORKSPACE_MISSING, WORKSPACE_POOLED = range(3)
"""The workspace of a start: complete, to be made, or an empty one from the pool."""
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
MAX_PATH_FOLDERS = 256
"""How many different folders of a PATH are searched; servers admit no more
(`duly.model.requests.task_request`)."""
PATH_SEARCH_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
"""Errors after which the next folder of a PATH is tried."""


class SpawnerConfig(NamedTuple):
    """The parameters of a new spawner."""

    connection: Connection
    start_states: "memoryview[int]"
    """The progress of each start, shared with the supervisor, which reads it if we die."""
    folders: list[str]
    """The folders of the attempts' cgroups, one per hierarchy."""
    open_files: tuple[int, int]
    disk: int
    """The largest file, in bytes, that tasks may write; 0 means no limit. It is for life."""
    supervisor: int


class Spawner:
    """The spawner's event loop."""

    def __init__(self, setting: SpawnerConfig) -> None:
        self._connection, self._start_states, self._folders, open_files, disk, self._supervisor = (
            setting
        )
        self._orders: deque[tuple[Any, ...]] = deque()
        self._results: list[tuple[Any, ...]] = []
        self._disk = disk
        self._children: dict[int, tuple[int, str, bool, tuple[int, int] | None]] = {}
        """By pid: the attempt, its workspace, whether we made or reused that workspace, and its
        user if an empty workspace goes back to the pool."""
        self._procs_files: dict[str, list[int]] = {}
        procs_files = min(MAX_OPEN_CGROUP_FILES, open_files[0] // 2)
        self._max_open_groups = max(1, procs_files // max(1, len(self._folders)))
        self._current_group = ""
        self._standby_group = SPAWNER_CGROUP
        self._processors = os.sched_getaffinity(0)
        self._niceness = os.getpriority(os.PRIO_PROCESS, 0)
        # The standard input of tasks.
        self._no_input = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        os.dup2(self._no_input, 0)
        self._wakeup_reader, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
        if disk:
            # One byte more, so that a file that hit the limit is longer than any allowed one.
            resource.setrlimit(resource.RLIMIT_FSIZE, (disk + 1, disk + 1))
        if os.geteuid() == 0:
            os.setgroups([])
        self._restore_scheduling()
        self._leave_attempt()

    def run(self) -> None:
        """Serve the supervisor until it is gone."""
        ready = select.poll()
        ready.register(self._connection.socket, select.POLLIN)
        ready.register(self._wakeup_reader, select.POLLIN)
        while True:
            # SIGCHLD is only let in while waiting: one signal for many exits, none while busy.
            set_mask(signal.SIG_UNBLOCK, CHILD_SIGNALS)
            found = ready.poll(0 if self._orders else None)
            set_mask(signal.SIG_BLOCK, CHILD_SIGNALS)
            for fd, _ in found:
                if fd == self._wakeup_reader:
                    os.read(self._wakeup_reader, 4096)
                    continue
                orders = self._connection.receive()
                if orders is None:
                    return
                self._orders.extend(orders)
            if self._orders:
                for _ in range(min(len(self._orders), MAX_STARTS_PER_BATCH)):
                    self._handle_command(*self._orders.popleft())
                self._leave_attempt()
            # Send the exits that were reaped before the next start, which might kill us.
            self._reap()
            self._send_results()

    def _send_results(self) -> None:
        if self._results:
            self._connection.send(self._results)
            self._results = []
            while self._connection.is_full:
                select.select([], [self._connection.socket], [])
                self._connection.send()

    def _handle_command(self, verb: str, *subject: Any) -> None:
        if verb == "start":
            self._start(*subject)
        elif verb == "standby":
            self._standby_group = subject[0]
        elif verb == "reset":
            self._restore_scheduling()
            reset_io_priority()
        elif verb == "terminate":
            for pid, (attempt, *_) in self._children.items():
                if attempt == subject[0]:
                    os.killpg(pid, signal.SIGTERM)

    def _start(self, slot: int, attempt: int, group: str | None, begin: tuple[Any, ...]) -> None:
        argv, env, cwd, folder, user, is_kept, *stdin = begin
        output = self._connection.received_descriptors.popleft()
        self._start_states[slot] = START_UNDER_WAY
        step = "cgroup"
        try:
            if os.getppid() != self._supervisor:
                os._exit(0)  # The supervisor is dead, so nothing would ever end the task.
            if group is not None:
                if group == self._standby_group:
                    self._standby_group = SPAWNER_CGROUP  # Now it belongs to the attempt.
                self._enter(group)
            step = "stdin"
            if stdin:
                self._provide_input(*stdin)
            step = "workspace"
            if folder != WORKSPACE_READY:
                self._prepare(cwd, folder, user)
            os.chdir(cwd)
            step = "exec"
            at = monotonic()
            pid = self._spawn(argv, env, user, output)
        except OSError as error:
            self._results.append(("failed", attempt, step, error.errno or errno.EIO))
            return
        except ValueError:
            self._results.append(("failed", attempt, step, errno.EINVAL))
            return
        finally:
            os.close(output)
            if stdin:
                os.dup2(self._no_input, 0)
        self._start_states[slot] = pid
        self._children[pid] = attempt, cwd, folder != WORKSPACE_READY, user if is_kept else None
        self._results.append(("begun", attempt, pid, at))

    def _provide_input(self, data: bytes) -> None:
        """Make `data` the standard input; the attempt's cgroup, which we are in, pays for it."""
        fd = open_input(data)
        os.dup2(fd, 0)
        os.close(fd)

    def _prepare(self, cwd: str, folder: int, user: tuple[int, int] | None) -> None:
        if folder == WORKSPACE_POOLED and user is not None:
            try:
                os.chown(cwd, *user)
            except FileNotFoundError:
                pass  # It was removed from outside.
            else:
                return
        os.mkdir(cwd, 0o700)
        if user is not None:
            os.chown(cwd, *user)

    def _spawn(
        self, argv: list[str], env: dict[str, str], user: tuple[int, int] | None, output: int
    ) -> int:
        if user is None:
            return self._execute(argv, env, output)
        uid, gid = user
        try:
            os.setresgid(gid, gid, 0)
            os.setresuid(uid, uid, 0)
            return self._execute(argv, env, output)
        finally:
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)
            self._restore_scheduling()

    def _restore_scheduling(self) -> None:
        """Restore the scheduling that a task's user may have changed; tasks start at nice 0."""
        os.sched_setscheduler(0, SCHEDULING_POLICY, SCHEDULING_PRIORITY)
        os.sched_setaffinity(0, self._processors)
        try:
            os.setpriority(os.PRIO_PROCESS, 0, self._niceness)
        except PermissionError:
            pass

    def _execute(self, argv: list[str], env: dict[str, str], output: int) -> int:
        """Start the program, searched for in the task's own PATH."""
        program = argv[0]
        if "/" in program:
            return spawn(program, argv, env, output)
        found = errno.ENOENT
        folders = dict.fromkeys(env.get("PATH", DEFAULT_PATH).split(":"))
        for folder in islice(folders, MAX_PATH_FOLDERS):
            path = f"{folder or '.'}/{program}"
            try:
                os.stat(path)  # Cheaper than a spawn that fails.
                return spawn(path, argv, env, output)
            except OSError as error:
                # Like a shell: skip a program that may not be executed, but report it at the end.
                if error.errno not in PATH_SEARCH_ERRORS:
                    raise
                found = error.errno if error.errno == errno.EACCES else found
        raise OSError(found, os.strerror(found))

    def _enter(self, group: str) -> None:
        """Move into a cgroup, unless already there: the move may take milliseconds."""
        if group == self._current_group:
            return
        self._current_group = ""
        procs_files = self._procs_files.get(group)
        if procs_files is None:
            if len(self._procs_files) >= self._max_open_groups:
                for fd in self._procs_files.pop(next(iter(self._procs_files))):
                    os.close(fd)
            procs_files = self._procs_files[group] = self._open_procs_files(group)
        for procs_file in procs_files:
            os.write(procs_file, b"0")
        self._current_group = group

    def _open_procs_files(self, group: str) -> list[int]:
        return [
            os.open(f"{folder}/{group}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            for folder in self._folders
        ]

    def _leave_attempt(self) -> None:
        """Leave the attempt's cgroup and workspace: they may be frozen, killed or removed."""
        if self._folders:
            self._enter(self._standby_group)
        os.chdir("/")

    def _reap(self) -> None:
        while self._children:
            pid, status, rusage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            at = monotonic()
            attempt, cwd, is_ours, user = self._children.pop(pid)
            cpu = rusage.ru_utime + rusage.ru_stime
            is_workspace_empty = is_ours and (reclaim(cwd, user) if user else remove_if_empty(cwd))
            disk_usage = None if is_workspace_empty or not self._disk else tuple(measure(cwd))
            code = os.waitstatus_to_exitcode(status)
            peak = own_peak(rusage.ru_maxrss)
            self._results.append(
                ("ended", attempt, code, cpu, peak, at, is_workspace_empty, disk_usage)
            )


def own_peak(max_rss: int) -> int | None:
    """Return the peak memory of a child in bytes from its `ru_maxrss`; None if it is unknown.

    A vforked child starts with our memory, and Linux counts it in the maximum even after the exec.
    """
    return max_rss * 1024 if max_rss > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss else None


def reset_io_priority() -> None:
    """Reset an I/O priority that a task's user may have set: tasks inherit it."""
    import ctypes  # Large, and only needed where there are many tenants.

    number = IOPRIO_SET.get(os.uname().machine)
    if number is not None:
        ctypes.CDLL(None).syscall(number, IOPRIO_WHO_PROCESS, 0, 0)


def spawn(path: str, argv: list[str], env: dict[str, str], output: int) -> int:
    """Start a program with the current user, cgroup and directory; return its process id."""
    streams = (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)
    return os.posix_spawn(
        path, argv, env, file_actions=streams, setsid=True, setsigmask=(), setsigdef=RESET_SIGNALS
    )


def remove_if_empty(cwd: str) -> bool:
    """Remove an empty workspace, as most tasks leave it; False means that it is not empty."""
    try:
        os.rmdir(cwd)
    except OSError:
        return False
    return True
