"""The messages between a worker's session and its warm processes, and their frames.

A frame is a list of messages in msgpack behind its length. Arguments and results are JSON and stay
bytes here. Both ends come from one installation, so there are no versions.
"""

from typing import Any, TypeVar

import msgspec

HEADER_BYTES = 4


class Run(msgspec.Struct, array_like=True, tag="run", frozen=True):
    """Call a function. `number` counts the calls of this worker."""

    number: int
    function: str
    arguments: bytes
    task: int
    attempt: int
    name: str
    cap: float
    log_limit: int
    result_limit: int
    inputs: dict[str, bytes]
    spool: str
    """Where its output goes if it runs beside others and writes much or for long."""
    uses: tuple[str, ...]


class End(msgspec.Struct, array_like=True, tag="end", frozen=True):
    """Withdraw a call that has not begun; interrupt one that has, unless `only_withdraw`."""

    number: int
    only_withdraw: bool


class Answer(msgspec.Struct, array_like=True, tag="answer", frozen=True):
    """The answer to `Ask`: JSON, or an error code with its message."""

    question: int
    body: bytes
    error: str
    message: str


class Silence(msgspec.Struct, array_like=True, tag="silence", frozen=True):
    """The output of a call has reached its limit: drop the rest."""

    number: int


class Follow(msgspec.Struct, array_like=True, tag="follow", frozen=True):
    """Write the output of a call that runs beside others to its file from now on."""

    number: int


class Quit(msgspec.Struct, array_like=True, tag="quit", frozen=True):
    """Run the shutdown hooks and exit; no call runs or waits."""


class Ready(msgspec.Struct, array_like=True, tag="ready", frozen=True):
    """The process is warm. `proof` is the secret that it was started with."""

    proof: str
    functions: list[str]
    files: list[str]
    """The source files of the application."""


class Ended(msgspec.Struct, array_like=True, tag="ended", frozen=True):
    """A call has ended."""

    number: int
    began_at: float
    ended_at: float
    cpu_seconds: float
    peak_bytes: int
    is_interrupted: bool
    result: bytes | None
    """None if it did not return."""
    code: str
    message: str
    details: dict[str, Any]
    retry_after: float | None
    gives_up: bool
    log: bytes
    log_size: int
    spooled_as: str
    """The file with its output, if that is longer than what fits here."""


class Withdrawn(msgspec.Struct, array_like=True, tag="withdrawn", frozen=True):
    """A call will not begin here."""

    number: int


class Said(msgspec.Struct, array_like=True, tag="said", frozen=True):
    """Progress of a running call."""

    number: int
    fraction: float
    text: str | None


class CallThrottled(msgspec.Struct, array_like=True, tag="throttled", frozen=True):
    """A downstream has throttled a running call."""

    number: int
    key: str
    retry_after: float


class Ask(msgspec.Struct, array_like=True, tag="ask", frozen=True):
    """Something that a running call wants of the servers."""

    number: int
    question: int
    what: str
    """`stages`, `stage` or `submit`."""
    name: str
    body: bytes


ToProcess = Run | End | Answer | Silence | Follow | Quit
ToSession = Ready | Ended | Withdrawn | Said | CallThrottled | Ask

T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder()


def encode(messages: list[Any]) -> bytes:
    """Return `messages` as a frame."""
    body = _encoder.encode(messages)
    return len(body).to_bytes(HEADER_BYTES, "little") + body


class Decoder:
    """Reassembles messages of the types `kind` from a byte stream."""

    def __init__(self, kind: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(list[kind])
        self._rest = b""

    def feed(self, data: bytes) -> list[Any]:
        """Append `data`, and return all messages that are now complete."""
        data = self._rest + data if self._rest else data
        messages: list[Any] = []
        start = 0
        while len(data) - start >= HEADER_BYTES:
            body = start + HEADER_BYTES
            end = body + int.from_bytes(data[start:body], "little")
            if end > len(data):
                break
            messages += self._decoder.decode(data[body:end])
            start = end
        self._rest = data[start:]
        return messages
