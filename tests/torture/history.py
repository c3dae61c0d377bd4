"""Records the calls of clients and their responses as JSON lines.

A call is recorded twice: when it is made, and when it was answered. So a client that is killed in
between leaves a record of the request.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from duly.clock import monotonic
from duly.errors import DulyError, LimitExceeded, Unavailable

T = TypeVar("T")
Op = Literal[
    "submit",
    "repeat",
    "batch",
    "cancel",
    "pause",
    "resume",
    "get",
    "wait",
    "create schedule",
    "change schedule",
    "pause schedule",
    "resume schedule",
    "remove schedule",
    "submit graph",
    "pause graph",
    "resume graph",
    "cancel graph",
]
SUBMITS = frozenset({"submit", "repeat", "batch", "submit graph"})
RESULT_FIELDS = ("id", "ids", "status", "attempt", "failures", "losses", "schedule", "graph")
"""The recorded fields of a response."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a client, with times of CLOCK_BOOTTIME; `info` means that its effect is unknown.

    `args` are the fields of a submission, `{"tasks": [fields, …]}` of a batch or graph, `{"graph":
    id}` or `{"schedule": id}` with changed fields for operations on those, and `{"task": id}` for
    all others. `result` is a task, `{"ids": […]}`, also with the `graph`, `{"graph": id}`,
    `{"schedule": id}`, or `{"code": …}` of an error.
    """

    op: Op
    process: str = ""
    number: int = 0
    key: str | None = None
    args: dict[str, Any] = {}
    invoked: float = 0.0
    returned: float | None = None
    outcome: Literal["ok", "info", "fail"] = "info"
    result: dict[str, Any] | None = None


class Recorder:
    """Records the calls of one client process; its threads may share it."""

    def __init__(self, path: Path, process: str) -> None:
        self._file = path.open("ab", buffering=0)
        self._process = process
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def close(self) -> None:
        self._file.close()

    def call(
        self, op: Op, request: Callable[[], T], *, args: Mapping[str, Any], key: str | None = None
    ) -> T | None:
        """Make a call and record it; return None unless it succeeded.

        A submission needs a key: without one, a stored task could not be matched with a submission
        whose response was lost.
        """
        if op in SUBMITS and key is None:
            raise ValueError(f"a {op} without a key")
        pending = Call(
            op=op,
            process=self._process,
            number=next(self._numbers),
            key=key,
            args=dict(args),
            invoked=monotonic(),
        )
        self._write(pending)
        try:
            response = request()
        except (DulyError, TimeoutError) as error:
            self._write(_failed(pending, error))
            return None
        self._write(
            msgspec.structs.replace(
                pending, returned=monotonic(), outcome="ok", result=_result_fields(response)
            )
        )
        return response

    def _write(self, call: Call) -> None:
        with self._lock:
            self._file.write(msgspec.json.encode(call) + b"\n")


def is_definite(error: BaseException) -> bool:
    """Return True if an error means that the call had no effect.

    A refusal because of the rate or the database does not: an earlier try of the same call may have
    succeeded, and its response was lost.
    """
    return isinstance(error, DulyError) and not isinstance(error, Unavailable | LimitExceeded)


def read(paths: Iterable[Path]) -> list[Call]:
    """Return the latest record of each call, in the order of invocation."""
    calls: dict[tuple[str, int], Call] = {}
    for path in paths:
        for line in path.read_bytes().splitlines():
            try:
                call = msgspec.json.decode(line, type=Call)
            except msgspec.DecodeError:
                continue  # The last line of a client that was killed while writing.
            calls[call.process, call.number] = call
    return sorted(calls.values(), key=lambda call: call.invoked)


def _failed(pending: Call, error: DulyError | TimeoutError) -> Call:
    code = error.code if isinstance(error, DulyError) else "timeout"
    return msgspec.structs.replace(
        pending,
        returned=monotonic(),
        outcome="fail" if is_definite(error) else "info",
        result={"code": code},
    )


def _result_fields(response: Any) -> dict[str, Any]:
    if isinstance(response, list):
        return {"ids": response}
    return {name: response[name] for name in RESULT_FIELDS if name in response}
