"""Generates HTTP load cheaply: prepared requests over bare sockets.

A client library would take from the machine what the server could use, and then it
would be measured, too. Each client sends its next request when the answer to the last
one is complete.
"""

import json
import selectors
import socket
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

CORES = 2
BATCH = 1000
"""How many tasks a request has where there are many."""
AT_A_TIME = 200
"""How many of the benchmark's tasks run at once; more of them gain nothing."""


def true(at_a_time: int) -> dict[str, Any]:
    """Return a task of which so many have room at once."""
    resources = {"cpu": CORES / at_a_time, "memory_mb": 16, "disk_mb": 1}
    return {"command": ["/bin/true"], "resources": resources}


TRUE = true(AT_A_TIME)


class Refused(RuntimeError):
    """A request was not answered with a status that was expected."""


class Requests:
    """Prepared requests for one server."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self.address = parts.hostname or "", parts.port or 80
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n"

    def get(self, path: str) -> bytes:
        """Return a whole request that has no body."""
        return f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode()

    def post(self, path: str, body: Any) -> bytes:
        """Return a whole request as it goes over the wire."""
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\n{self._head}Content-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data

    def batch(self, count: int, task: dict[str, Any]) -> bytes:
        """Return the request that submits `count` times the same task."""
        return self.post("/v1/tasks/batch", {"tasks": [task] * count})

    def batches(self, count: int, task: dict[str, Any], size: int = BATCH) -> list[bytes]:
        """Return the requests that submit `count` times the same task, `size` in each."""
        full, rest = divmod(count, size)
        last = [self.batch(rest, task)] if rest else []
        return [self.batch(size, task)] * full + last


class Client:
    """One connection, and what has come of the answer that it waits for."""

    def __init__(self, address: tuple[str, int], expected: Collection[bytes]) -> None:
        self._expected = expected
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def send(self, request: bytes) -> None:
        """Send a whole request; the server reads while we write, so this cannot lock up."""
        self._received = b""
        self.socket.sendall(request)

    def ask(self, request: bytes) -> bytes:
        """Send a whole request, and return the body of the answer once it is complete."""
        self.send(request)
        while (body := self.receive()) is None:
            pass
        return body

    def receive(self) -> bytes | None:
        """Take what has come; return the body once the answer is complete."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise Refused("the server has closed the connection")
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < _length(head):
            return None
        if head.split(b" ", 2)[1] not in self._expected:
            raise Refused(f"{head.splitlines()[0].decode()}: {body[:500].decode()}")
        return body


def send_all(
    requests: Requests,
    prepared: Iterable[bytes],
    clients: int,
    expected: Collection[bytes] = (b"201",),
) -> tuple[float, list[bytes]]:
    """Send every request, from `clients` at once; return the seconds it took, and the answers."""
    left, answers = iter(prepared), list[bytes]()
    with selectors.DefaultSelector() as selector:
        try:
            for _ in range(clients):
                client = Client(requests.address, expected)
                selector.register(client.socket, selectors.EVENT_READ, client)
            began = time.perf_counter()
            for key in list(selector.get_map().values()):
                _next(selector, key.data, left)
            while selector.get_map():
                for key, _ in selector.select():
                    body = key.data.receive()
                    if body is not None:
                        answers.append(body)
                        _next(selector, key.data, left)
            return time.perf_counter() - began, answers
        finally:
            for key in list(selector.get_map().values()):
                key.data.socket.close()


def latencies(requests: Requests, request: bytes, count: int) -> list[float]:
    """Send a request `count` times over one connection; return the seconds that each took."""
    client, took = Client(requests.address, (b"201",)), list[float]()
    try:
        for _ in range(count):
            began = time.perf_counter()
            client.ask(request)
            took.append(time.perf_counter() - began)
        return took
    finally:
        client.socket.close()


def _next(selector: selectors.BaseSelector, client: Client, left: Iterator[bytes]) -> None:
    request = next(left, None)
    if request is None:
        selector.unregister(client.socket)
        client.socket.close()
    else:
        client.send(request)


def _length(head: bytes) -> int:
    for line in head.lower().splitlines():
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    raise Refused("an answer without a length")
