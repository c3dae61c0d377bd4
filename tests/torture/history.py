"""Records the calls of clients and their responses as JSON lines.

A call is written down twice: when it is made, and again when it has been answered. So a
client that is killed in between leaves behind that it had asked, which is all that it knew.
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
SHOWN = ("id", "ids", "status", "attempt", "failures", "losses", "schedule", "graph")
"""What is kept of a task that a client was shown, or of a schedule or graph."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a client; times are of CLOCK_BOOTTIME, and `info` means: nobody knows.

    `args` are the fields of a submission, `{"tasks": [fields, …]}` of a batch or graph, `{"task":
    id}` of the others, `{"graph": id}` of what is done to a graph, and `{"schedule": id}` with what
    is to be changed of a schedule. `result` is a task as it was shown, `{"ids": […]}`, also with
    the `graph`, `{"graph": id}`, `{"schedule": id}`, or `{"code": …}` of what was refused.
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
    """Writes down the calls of one client process; its threads may share it."""

    def __init__(self, path: Path, process: str) -> None:
        self._file = path.open("ab", buffering=0)
        self._process = process
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def close(self) -> None:
        self._file.close()

    def call(
        self, op: Op, do: Callable[[], T], *, args: Mapping[str, Any], key: str | None = None
    ) -> T | None:
        """Make a call and write down what came of it; None when it was not answered `ok`.

        A submission needs its key: else nobody could tell afterwards whether a task that is
        stored is the one whose answer was lost.
        """
        if op in SUBMITS and key is None:
            raise ValueError(f"a {op} without a key")
        asked = Call(
            op=op,
            process=self._process,
            number=next(self._numbers),
            key=key,
            args=dict(args),
            invoked=monotonic(),
        )
        self._write(asked)
        try:
            answer = do()
        except (DulyError, TimeoutError) as error:
            self._write(_failed(asked, error))
            return None
        self._write(
            msgspec.structs.replace(
                asked, returned=monotonic(), outcome="ok", result=_shown(answer)
            )
        )
        return answer

    def _write(self, call: Call) -> None:
        with self._lock:
            self._file.write(msgspec.json.encode(call) + b"\n")


def is_definite(error: BaseException) -> bool:
    """Say whether an error means that nothing was done.

    A refusal for the rate or for want of a database does not: an earlier try of the same call
    may have been carried out, and only its answer was lost.
    """
    return isinstance(error, DulyError) and not isinstance(error, Unavailable | LimitExceeded)


def read(paths: Iterable[Path]) -> list[Call]:
    """Return the calls in the order in which they were made, each as it was known at last."""
    calls: dict[tuple[str, int], Call] = {}
    for path in paths:
        for line in path.read_bytes().splitlines():
            try:
                call = msgspec.json.decode(line, type=Call)
            except msgspec.DecodeError:
                continue  # The last line of a client that was killed while it wrote.
            calls[call.process, call.number] = call
    return sorted(calls.values(), key=lambda call: call.invoked)


def _failed(asked: Call, error: DulyError | TimeoutError) -> Call:
    code = error.code if isinstance(error, DulyError) else "timeout"
    return msgspec.structs.replace(
        asked,
        returned=monotonic(),
        outcome="fail" if is_definite(error) else "info",
        result={"code": code},
    )


def _shown(answer: Any) -> dict[str, Any]:
    if isinstance(answer, list):
        return {"ids": answer}
    return {name: answer[name] for name in SHOWN if name in answer}
