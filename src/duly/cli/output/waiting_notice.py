"""Prints why a task has not started yet, for a person at a terminal."""

import sys
import threading
from types import TracebackType
from typing import Self

from duly.cli.connect import print_notice
from duly.cli.output.details import NOT_STARTED, reason_message
from duly.cli.output.text import localise_times, now
from duly.client.sync import Client
from duly.errors import DulyError

POLL_INTERVAL_SECONDS = 2.0
"""Also the delay before the first notice."""


class WaitingNotice:
    """Prints to stderr what a task waits for, whenever that changes; only at a terminal."""

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
        """Stop printing, because the task's output follows."""
        self._stop.set()

    def _watch(self) -> None:
        last_reason = ""
        while not self._stop.wait(POLL_INTERVAL_SECONDS):
            try:
                task = self._client.get_task(self._task)
            except DulyError:
                return
            if task["status"] in NOT_STARTED and (reason := reason_message(task)) != last_reason:
                last_reason = reason
                print_notice(f"{task['status']}: {localise_times(reason, now())}")
