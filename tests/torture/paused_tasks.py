"""Tracks the tasks that a client has paused, and resumes them so that the run can end."""

import time
from random import Random

from duly.client.shapes.task_shapes import Task
from duly.client.sync import Client
from duly.errors import DulyError
from tests.torture.history import Recorder, is_definite

PAUSE_SECONDS = (0.5, 6.0)
"""Seconds after which a paused task is resumed."""
RETRY_INTERVAL_SECONDS = 0.5
FINAL_RESUME_TIMEOUT_SECONDS = 60.0
"""Time limit for resuming all tasks at the end."""


class PausedTasks:
    """The tasks that a client may have paused, and when to resume them."""

    def __init__(self, client: Client, recorder: Recorder, rng: Random) -> None:
        self._client = client
        self._recorder = recorder
        self._rng = rng
        self._resume_at: dict[str, float] = {}

    def pause(self, task: str) -> None:
        """Pause a task; it may be paused even if the call fails."""
        self._resume_at[task] = time.monotonic() + self._rng.uniform(*PAUSE_SECONDS)
        self._recorder.call("pause", lambda: self._client.pause_task(task), args={"task": task})

    def resume_one(self) -> bool:
        """Resume a task whose pause is over; return False if there is none."""
        now = time.monotonic()
        due = next((task for task, until in self._resume_at.items() if until <= now), None)
        if due is not None:
            self._resume(due)
        return due is not None

    def resume_all(self) -> None:
        """Resume all tasks, with retries."""
        deadline = time.monotonic() + FINAL_RESUME_TIMEOUT_SECONDS
        while self._resume_at:
            for task in list(self._resume_at):
                self._resume(task)
            if self._resume_at and time.monotonic() > deadline:
                raise TimeoutError(f"these tasks could not be resumed: {list(self._resume_at)}")
            time.sleep(RETRY_INTERVAL_SECONDS if self._resume_at else 0.0)

    def _resume(self, task: str) -> None:
        def resume() -> Task:
            try:
                resumed = self._client.resume_task(task)
            except DulyError as error:
                if is_definite(error):
                    del self._resume_at[task]  # It has ended, or is being cancelled.
                raise
            del self._resume_at[task]
            return resumed

        self._recorder.call("resume", resume, args={"task": task})
