"""Runs programs that can be killed and stopped, and waits for conditions."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


def until(condition: Callable[[], T], description: str, seconds: float = 30) -> T:
    """Poll until `condition` returns a true value, and return it; raises AssertionError else."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {description}")
        time.sleep(0.05)


class Program:
    """A process with a log file of its output."""

    def __init__(self, args: Sequence[str], *, log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                args,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={**os.environ, **env},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def has_logged(self, pattern: str) -> bool:
        return re.search(pattern, self.log.read_text(errors="replace")) is not None

    def send(self, signal_number: int) -> None:
        self.process.send_signal(signal_number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait(10)

    def stop(self, seconds: float = 30) -> int:
        if self.is_running():
            self.send(signal.SIGTERM)
        return self.process.wait(seconds)

    def tree(self) -> list[psutil.Process]:
        """Return this process and its descendants."""
        try:
            process = psutil.Process(self.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
