"""Runs commands in processes that are forked from one that has imported the command line.

Each command is a process with its own arguments, folder and streams, as one that a shell starts;
only the imports, most of the time of a short command, happen once. How commands start by themselves
is tested in `test_main.py`, `test_exit_codes.py` and `test_interrupts.py`.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 60


class PreloadedCommands:
    """The process that commands are forked from, with the environment that they have."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.cli.preloaded", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        exit_code, exit_code_end = os.pipe()
        with (
            os.fdopen(exit_code) as result,
            tempfile.TemporaryFile("w+", encoding="utf-8") as stdout,
            tempfile.TemporaryFile("w+", encoding="utf-8") as stderr,
        ):
            request = json.dumps({"args": args, "cwd": str(Path.cwd())}).encode()
            fds = [0, stdout.fileno(), stderr.fileno(), exit_code_end]
            socket.send_fds(self._requests, [request], fds)
            os.close(exit_code_end)
            text = result.read()
            for stream in (stdout, stderr):
                stream.seek(0)
            return subprocess.CompletedProcess(args, int(text), stdout.read(), stderr.read())

    def stop(self) -> None:
        """End the process; commands that still run are not affected."""
        self._requests.close()
        self._process.wait(TIMEOUT_SECONDS)


def serve(requests: socket.socket) -> None:
    """Fork a process per request, which returns from here to run its command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, fds, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not request:
            os._exit(0)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            *streams, exit_code_end = fds
            if (pid := os.fork()) == 0:
                os.close(exit_code_end)
                become_command(streams, **json.loads(request))
                return
            _, status = os.waitpid(pid, 0)
            os.write(exit_code_end, str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
        for fd in fds:
            os.close(fd)


def become_command(streams: list[int], args: list[str], cwd: str) -> None:
    """Take over the streams, the arguments and the folder of a command."""
    for target, fd in enumerate(streams):
        os.dup2(fd, target)
        os.close(fd)
    os.chdir(cwd)
    sys.argv = ["duly", *args]


def preload() -> None:
    """Import everything that commands need."""
    from duly.cli.main import SECTIONS

    for section in SECTIONS.values():
        for entry in section.values():
            if not entry.extra:
                import_module(f"duly.cli.{entry.home.partition(':')[0]}")
    gc.freeze()


if __name__ == "__main__":
    from duly.cli import entry

    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))
    entry.main()
