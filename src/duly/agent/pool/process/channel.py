"""What a running function can do to its own attempt, over the connection to the session."""

import json
from typing import Any

from duly.agent.pool.messages import CallThrottled, Said
from duly.agent.pool.process.connection import Connection
from duly.agent.pool.process.running_call import RunningCall
from duly.model.progress import check_progress


class CallChannel:
    """The `AttemptChannel` of a call."""

    def __init__(self, connection: Connection, call: RunningCall) -> None:
        self._connection = connection
        self._call = call

    @property
    def is_cancelled(self) -> bool:
        """Whether the call was told to end."""
        return self._call.is_interrupted

    def progress(self, fraction: float, text: str | None) -> None:
        """Report progress."""
        said = check_progress(fraction, text, field="progress")
        self._connection.send(Said(self._call.run.number, said.fraction, said.text))

    def throttled(self, key: str, retry_after: float) -> None:
        """Report that a downstream has throttled the call."""
        self._connection.send(CallThrottled(self._call.run.number, key, retry_after))

    def stages(self) -> dict[str, bytes]:
        """Return the results of all stages that this task has stored."""
        found = json.loads(self._ask("stages", "", b""))
        return {name: json.dumps(result).encode() for name, result in found["items"].items()}

    def save_stage(self, name: str, result: bytes) -> bytes:
        """Store the result of a stage, and return what is stored."""
        return self._ask("stage", name, result)

    def submit(self, task: dict[str, Any]) -> dict[str, Any]:
        """Submit a child task, and return it."""
        child: dict[str, Any] = json.loads(self._ask("submit", "", json.dumps(task).encode()))
        return child

    def _ask(self, what: str, name: str, body: bytes) -> bytes:
        return self._connection.ask(self._call.run.number, what, name, body)
