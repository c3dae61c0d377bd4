"""A command at a real terminal, where Ctrl-C is a key that is pressed."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CTRL_C = b"\x03"
CTRL_D = b"\x04"
READ = {"x86_64": "0", "aarch64": "63"}
"""The number of the system call read."""


class Terminal:
    """A process whose terminal is ours to type at and to look at."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.shown = ""
        self._seen = 0
        self.process = subprocess.Popen(
            command,
            env={**env, "TERM": "xterm", "COLUMNS": "200"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(theirs)

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def press_when_read(self, key: bytes) -> None:
        """Press a key once the process waits for one.

        A signal that comes after the prompt was shown and before it is waited for is noticed with
        the next key only: Python waits in the C library.
        """
        call = Path(f"/proc/{self.process.pid}/syscall")
        while call.read_text().split()[0] != READ[os.uname().machine]:
            assert self.process.poll() is None, self.shown
            time.sleep(0.01)
        self.press(key)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read on until something new matches; fail if the command ends before."""
        while not (found := re.compile(pattern).search(self.shown, self._seen)):
            assert self._read(), f"never showed {pattern!r}:\n{self.shown}"
        self._seen = found.end()
        return found

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and everything that was shown."""
        while self._read():
            pass
        return self.process.wait(60), self.shown

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        os.close(self._ours)

    def _read(self) -> bool:
        try:
            new = os.read(self._ours, 65536)
        except OSError:  # The last process has closed its side.
            return False
        self.shown += new.decode(errors="replace").replace("\r\n", "\n")
        return True


def _take_terminal() -> None:
    # A test run in the background ignores SIGINT, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
