"""What a person at a terminal is told while a task has not started yet."""

import sys
import threading
from types import TracebackType
from typing import Self

from duly.cli.connect import say
from duly.cli.details import say_reason
from duly.client.sync import Client
from duly.errors import DulyError

PAUSE = 2.0
"""Seconds of quiet after which somebody begins to wonder."""
NOT_STARTED = frozenset({"scheduled", "blocked", "waiting", "paused"})


class Notice:
    """Says on stderr what a task waits for, whenever that changes; only at a terminal."""

    def __init__(self, client: Client, task: str) -> None:
        self._client = client
        self._task = task
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Say no more: there is something else to be seen."""
        self._stop.set()

    def _watch(self) -> None:
        said = ""
        while not self._stop.wait(PAUSE):
            try:
                task = self._client.get_task(self._task)
            except DulyError:
                return
            if task["status"] in NOT_STARTED and (reason := say_reason(task)) != said:
                said = reason
                say(f"{task['status']}: {reason}")
