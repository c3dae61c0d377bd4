"""The connection of a warm process to its session, and the thread that reads from it."""

import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from duly.agent.pool import messages
from duly.agent.pool.messages import Answer, Ask, Decoder, ToProcess
from duly.errors import DulyError, Fenced, Unavailable

READ_BYTES = 2**18


class Connection:
    """Sends messages at once, and passes those that come in to a handler."""

    def __init__(self, folder: str, name: str) -> None:
        # The path of a socket may have 107 bytes; that of a descriptor is always short.
        at = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(f"/proc/self/fd/{at}/{name}")
        finally:
            os.close(at)
        self._lock = threading.Lock()
        self._questions: dict[int, tuple[threading.Event, list[Answer]]] = {}
        self._last_question = 0

    def send(self, *batch: Any) -> None:
        """Send messages; waits while the session does not read."""
        frame = messages.encode(list(batch))
        with self._lock:
            self._socket.sendall(frame)

    def read(self, handle: Callable[[ToProcess], None]) -> None:
        """Handle messages until the session is gone, and then end this process."""
        decoder = Decoder(ToProcess)
        try:
            while data := self._socket.recv(READ_BYTES):
                for message in decoder.feed(data):
                    if isinstance(message, Answer):
                        self._answer(message)
                    else:
                        handle(message)
        finally:
            # Whatever runs here may run elsewhere by now, and nothing can be reported.
            os._exit(1)

    def ask(self, number: int, what: str, name: str, body: bytes) -> bytes:
        """Have the session ask a server, and return the answer; any thread may call it."""
        done = threading.Event()
        answers: list[Answer] = []
        with self._lock:
            self._last_question += 1
            question = self._last_question
        self._questions[question] = done, answers
        try:
            self.send(Ask(number, question, what, name, body))
            done.wait()
        finally:
            self._questions.pop(question, None)
        (answer,) = answers
        if answer.error:
            raise _error_of(answer)
        return answer.body

    def _answer(self, answer: Answer) -> None:
        asked = self._questions.get(answer.question)
        if asked is not None:
            asked[1].append(answer)
            asked[0].set()


def _error_of(answer: Answer) -> DulyError:
    if answer.error == Fenced.code:
        return Fenced(answer.message)
    if answer.error == Unavailable.code:
        return Unavailable(answer.message)
    error = DulyError(answer.message)
    error.code = answer.error  # type: ignore[misc]
    return error
