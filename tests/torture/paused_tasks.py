"""Tracks the tasks that a client has paused, and resumes them so that the run can end."""

import time
from random import Random

from duly.client.shapes.task_shapes import Task
from duly.client.sync import Client
from duly.errors import DulyError
from tests.torture.history import Recorder, is_definite

LASTS = (0.5, 6.0)
"""Seconds after which what is paused is resumed."""
INTERVAL = 0.5
PARTING = 60.0
"""Seconds for which a client that leaves tries to resume what it has paused."""


class PausedTasks:
    """What one client may have paused, and until when."""

    def __init__(self, client: Client, recorder: Recorder, dice: Random) -> None:
        self._client = client
        self._recorder = recorder
        self._dice = dice
        self._until: dict[str, float] = {}

    def pause(self, task: str) -> None:
        """Pause a task; it may be paused even if nobody said so."""
        self._until[task] = time.monotonic() + self._dice.uniform(*LASTS)
        self._recorder.call("pause", lambda: self._client.pause_task(task), args={"task": task})

    def resume_one(self) -> bool:
        """Resume a task that has been paused for long enough; False if there is none."""
        now = time.monotonic()
        due = next((task for task, until in self._until.items() if until <= now), None)
        if due is not None:
            self._resume(due)
        return due is not None

    def leave(self) -> None:
        """Resume everything, and insist."""
        until = time.monotonic() + PARTING
        while self._until:
            for task in list(self._until):
                self._resume(task)
            if self._until and time.monotonic() > until:
                raise TimeoutError(f"these tasks could not be resumed: {list(self._until)}")
            time.sleep(INTERVAL if self._until else 0.0)

    def _resume(self, task: str) -> None:
        def resume() -> Task:
            try:
                resumed = self._client.resume_task(task)
            except DulyError as error:
                if is_definite(error):
                    del self._until[task]  # It has ended, or is being cancelled.
                raise
            del self._until[task]
            return resumed

        self._recorder.call("resume", resume, args={"task": task})
