"""Starts tasks and waits for them: a process of its own, below the supervisor.

A task is started with posix_spawn, which copies nothing: what a task is to inherit (its
cgroup, its limits, its folder, its user) this process takes on itself for a moment. It
remains root at heart, in its saved user id, which the new process gives up at exec.

For that moment the task's user could signal it or change its priority. So everything
that can be blocked is blocked; what cannot be costs a spawner, and the supervisor has
another one at once (`duly.agent.starter`).
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

from duly.agent.disk_usage import measure
from duly.agent.frames import Frames
from duly.agent.spares import reclaim
from duly.clock import monotonic

UNDER_WAY = 1
"""What stands on the board for a start that has begun; then the process id, which is higher."""
HOME = "spawner"
"""The name of our own cgroup, beside those of the attempts, while we stand in no other."""
AT_ONCE = 8
"""How many tasks are started before the supervisor hears of them."""
MOST_DOORS = 600
"""How many files of groups stay open, if that is no more than half of what tasks may open."""
CHILDREN = {signal.SIGCHLD}
SIGNALS = tuple(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
"""Tasks have the default for each. Where that is not asked for, the C library has the new process
look first what it is, which is as many system calls more."""
PLAIN, LEVEL = os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0)
"""How we are scheduled, and what we start is not."""
IOPRIO_SET = {"x86_64": 251, "aarch64": 30, "riscv64": 30, "ppc64le": 273, "s390x": 282}
"""The number of this system call, which no library has a function for."""
IOPRIO_WHO_PROCESS = 1
MADE, MAKE, RENEW = range(3)
"""What there is of a task's folder: all of it, nothing, or one that was another task's before."""
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
MAX_PATH_FOLDERS = 256
"""How many different folders of a PATH are searched; servers admit no more
(`duly.model.request`)."""
STEPS_ON = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
"""Errors after which the next folder of a PATH is tried."""


class Setting(NamedTuple):
    """What a spawner is given when it is made."""

    frames: Frames
    board: "memoryview[int]"
    """Shared with the supervisor, which reads it when we are dead: how far each start has come."""
    folders: list[str]
    """Where the groups of attempts are, in each hierarchy."""
    open_files: tuple[int, int]
    disk: int
    """The largest file, in bytes, that its tasks may write; 0 means any. It can never be raised."""
    supervisor: int


class Spawner:
    """The loop."""

    def __init__(self, setting: Setting) -> None:
        self._frames, self._board, self._folders, open_files, disk, self._supervisor = setting
        self._orders: deque[tuple[Any, ...]] = deque()
        self._results: list[tuple[Any, ...]] = []
        self._disk = disk
        self._children: dict[int, tuple[int, str, bool, tuple[int, int] | None]] = {}
        """The attempt of each process, its folder, whether we made that, whose it is if it is
        kept."""
        self._doors: dict[str, list[int]] = {}
        doors = min(MOST_DOORS, open_files[0] // 2)
        self._most_groups = max(1, doors // max(1, len(self._folders)))
        self._at = ""
        self._stand = HOME
        self._processors = os.sched_getaffinity(0)
        self._niceness = os.getpriority(os.PRIO_PROCESS, 0)
        # What tasks find as their standard input.
        os.dup2(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC), 0)
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
        if disk:
            # A byte more, so that a file that hit the limit is longer than one that may be there.
            resource.setrlimit(resource.RLIMIT_FSIZE, (disk + 1, disk + 1))
        if os.geteuid() == 0:
            os.setgroups([])
        self._recover()
        self._step_aside()

    def run(self) -> None:
        """Serve the supervisor until it is gone."""
        ready = select.poll()
        ready.register(self._frames.socket, select.POLLIN)
        ready.register(self._woken, select.POLLIN)
        while True:
            # One signal for many ends, and none while we are busy: each costs more than a look.
            set_mask(signal.SIG_UNBLOCK, CHILDREN)
            found = ready.poll(0 if self._orders else None)
            set_mask(signal.SIG_BLOCK, CHILDREN)
            for fd, _ in found:
                if fd == self._woken:
                    os.read(self._woken, 4096)
                    continue
                orders = self._frames.receive()
                if orders is None:
                    return
                self._orders.extend(orders)
            if self._orders:
                for _ in range(min(len(self._orders), AT_ONCE)):
                    self._obey(*self._orders.popleft())
                self._step_aside()
            # What has been reaped is told before anything else is started: we might not live.
            self._reap()
            self._tell()

    def _tell(self) -> None:
        if self._results:
            self._frames.try_to_send(self._results)
            self._results = []
            while self._frames.is_full:
                select.select([], [self._frames.socket], [])
                self._frames.try_to_send()

    def _obey(self, verb: str, *subject: Any) -> None:
        if verb == "start":
            self._start(*subject)
        elif verb == "stand":
            self._stand = subject[0]
        elif verb == "reset":
            self._recover()
            reset_io_priority()
        elif verb == "terminate":
            for pid, (attempt, *_) in self._children.items():
                if attempt == subject[0]:
                    os.killpg(pid, signal.SIGTERM)

    def _start(self, slot: int, attempt: int, group: str | None, begin: tuple[Any, ...]) -> None:
        argv, env, cwd, folder, user, is_kept = begin
        output = self._frames.received.popleft()
        self._board[slot] = UNDER_WAY
        step = "cgroup"
        try:
            if os.getppid() != self._supervisor:
                os._exit(0)  # Nobody would ever end it.
            if group is not None:
                if group == self._stand:
                    self._stand = HOME  # It is the attempt's from now on.
                self._enter(group)
            step = "workspace"
            if folder != MADE:
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
        self._board[slot] = pid
        self._children[pid] = attempt, cwd, folder != MADE, user if is_kept else None
        self._results.append(("begun", attempt, pid, at))

    def _prepare(self, cwd: str, folder: int, user: tuple[int, int] | None) -> None:
        if folder == RENEW and user is not None:
            try:
                os.chown(cwd, *user)
            except FileNotFoundError:
                pass  # Somebody tidies up here.
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
            self._recover()

    def _recover(self) -> None:
        """Set what a task's user may have changed of us; tasks themselves begin at nice 0."""
        os.sched_setscheduler(0, PLAIN, LEVEL)
        os.sched_setaffinity(0, self._processors)
        try:
            os.setpriority(os.PRIO_PROCESS, 0, self._niceness)
        except PermissionError:
            pass

    def _execute(self, argv: list[str], env: dict[str, str], output: int) -> int:
        """Start the program, looked for in the task's own PATH."""
        program = argv[0]
        if "/" in program:
            return spawn(program, argv, env, output)
        found = errno.ENOENT
        folders = dict.fromkeys(env.get("PATH", DEFAULT_PATH).split(":"))
        for folder in islice(folders, MAX_PATH_FOLDERS):
            path = f"{folder or '.'}/{program}"
            try:
                os.stat(path)  # A look costs less than a process that finds nothing.
                return spawn(path, argv, env, output)
            except OSError as error:
                # Like a shell: a program that may not be run is passed over, but remembered.
                if error.errno not in STEPS_ON:
                    raise
                found = error.errno if error.errno == errno.EACCES else found
        raise OSError(found, os.strerror(found))

    def _enter(self, group: str) -> None:
        """Go into a group, unless we are there: it may take the kernel milliseconds."""
        if group == self._at:
            return
        self._at = ""
        doors = self._doors.get(group)
        if doors is None:
            if len(self._doors) >= self._most_groups:
                for fd in self._doors.pop(next(iter(self._doors))):
                    os.close(fd)
            doors = self._doors[group] = self._open_doors(group)
        for door in doors:
            os.write(door, b"0")
        self._at = group

    def _open_doors(self, group: str) -> list[int]:
        return [
            os.open(f"{folder}/{group}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            for folder in self._folders
        ]

    def _step_aside(self) -> None:
        """Be in no attempt's cgroup or folder: they may be frozen, killed or removed."""
        if self._folders:
            self._enter(self._stand)
        os.chdir("/")

    def _reap(self) -> None:
        while self._children:
            pid, status, rusage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            at = monotonic()
            attempt, cwd, is_ours, user = self._children.pop(pid)
            cpu = rusage.ru_utime + rusage.ru_stime
            is_bare = is_ours and (reclaim(cwd, user) if user else remove_bare(cwd))
            disk_usage = None if is_bare or not self._disk else tuple(measure(cwd))
            code = os.waitstatus_to_exitcode(status)
            peak = rusage.ru_maxrss * 1024
            self._results.append(("ended", attempt, code, cpu, peak, at, is_bare, disk_usage))


def reset_io_priority() -> None:
    """Give up an I/O priority that a task's user has set for us: tasks inherit it."""
    import ctypes  # Large, and only needed where there are many tenants.

    number = IOPRIO_SET.get(os.uname().machine)
    if number is not None:
        ctypes.CDLL(None).syscall(number, IOPRIO_WHO_PROCESS, 0, 0)


def spawn(path: str, argv: list[str], env: dict[str, str], output: int) -> int:
    """Start a program as whom and where we are now, and return its process id."""
    streams = (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)
    return os.posix_spawn(
        path, argv, env, file_actions=streams, setsid=True, setsigmask=(), setsigdef=SIGNALS
    )


def remove_bare(cwd: str) -> bool:
    """Remove a folder in which nothing is, as most tasks leave it; False means that it stays."""
    try:
        os.rmdir(cwd)
    except OSError:
        return False
    return True
