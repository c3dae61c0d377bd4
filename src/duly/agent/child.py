"""From fork to exec: how a task's first process becomes what it should be.

Everything between the two happens in a copy of the supervisor, so each step is a
system call or little more, and the first that fails is told through a pipe that
closes by itself when the program begins.
"""

# The supervisor imports no more than it must, so pathlib and contextlib stay out.
# ruff: noqa: PTH102, S606, SIM105

import errno
import os
import resource
import signal
from typing import Any, NamedTuple, Protocol

NEVER_BEGAN = 127
"""The exit code of a process that did not get as far as exec, or of a task that chose it."""
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


class Enclosure(Protocol):
    """What holds the processes of an attempt together."""

    def enter(self) -> None: ...  # noqa: D102
    def is_empty(self) -> bool: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102
    def freeze(self) -> None: ...  # noqa: D102
    def thaw(self) -> None: ...  # noqa: D102


class Fixtures(NamedTuple):
    """What every task is started with."""

    null: int
    """Becomes its stdin."""
    failed: int
    """Where a failure to get as far as exec is told: the attempt's id, the step, the error."""
    open_files: tuple[int, int]
    """Its limit on open files; the supervisor's own is higher."""


def start(spec: dict[str, Any], enclosure: Enclosure, output: int, fixtures: Fixtures) -> int:
    """Fork the process that becomes the task, and return its id."""
    pid = os.fork()
    if pid:
        return pid
    step = "cgroup"
    try:
        os.setsid()
        enclosure.enter()
        resource.setrlimit(resource.RLIMIT_NOFILE, fixtures.open_files)
        if spec["disk"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (spec["disk"], spec["disk"]))
        step = "workspace"
        if spec["make_cwd"]:
            os.mkdir(spec["cwd"], 0o700)
            if spec["uid"] is not None:
                os.chown(spec["cwd"], spec["uid"], spec["gid"])
        step = "user"
        _drop(spec["uid"], spec["gid"])
        step = "workspace"
        os.chdir(spec["cwd"])
        os.mkdir("tmp", 0o700)
        step = "streams"
        os.dup2(fixtures.null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        # A SIGTERM that came too early has been waiting, and takes effect here.
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        step = "exec"
        _execute(spec["argv"], spec["env"])
    except OSError as error:
        _tell(fixtures.failed, spec["id"], step, error.errno or errno.EIO)
    except ValueError:
        _tell(fixtures.failed, spec["id"], step, errno.EINVAL)
    finally:
        os._exit(NEVER_BEGAN)


def _tell(failed: int, attempt: int, step: str, number: int) -> None:
    os.write(failed, f"{attempt} {step} {number}\n".encode())


def _drop(uid: int | None, gid: int | None) -> None:
    if uid is None or gid is None:
        return
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except PermissionError:
        pass


def _execute(argv: list[str], env: dict[str, str]) -> None:
    """Replace this process by the program, looked for in the task's own PATH."""
    program = argv[0]
    if "/" in program:
        os.execve(program, argv, env)
    found = errno.ENOENT
    for folder in env.get("PATH", DEFAULT_PATH).split(":"):
        try:
            os.execve(f"{folder or '.'}/{program}", argv, env)
        except OSError as error:
            # Like a shell: a program that may not be run is passed over, but remembered.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                raise
            found = error.errno if error.errno == errno.EACCES else found
    raise OSError(found, os.strerror(found))
