"""Generates HTTP load cheaply: prepared requests over bare sockets.

A client library would compete with the server for the same cores, and so be part of the
measurement. Each client is closed-loop: it sends the next request when the response to the previous
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
BATCH_SIZE = 1000
"""Tasks in a batch request."""
CONCURRENCY = 200
"""Tasks of the benchmark that run concurrently; more would not raise the throughput."""


def true_task(concurrency: int) -> dict[str, Any]:
    """Return a task of /bin/true of which `concurrency` fit on the node."""
    resources = {"cpu": CORES / concurrency, "memory_mb": 16, "disk_mb": 1}
    return {"command": ["/bin/true"], "resources": resources}


TRUE_TASK = true_task(CONCURRENCY)


class UnexpectedResponse(RuntimeError):
    """A response had an unexpected status."""


class Requests:
    """Prepared requests for one server."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self.address = parts.hostname or "", parts.port or 80
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n"

    def get(self, path: str) -> bytes:
        """Return a GET request as bytes."""
        return f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode()

    def post(self, path: str, body: Any) -> bytes:
        """Return a POST request with a JSON body as bytes."""
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\n{self._head}Content-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data

    def batch(self, count: int, task: dict[str, Any]) -> bytes:
        """Return a request that submits `count` copies of a task."""
        return self.post("/v1/tasks/batch", {"tasks": [task] * count})

    def batches(self, count: int, task: dict[str, Any], size: int = BATCH_SIZE) -> list[bytes]:
        """Return requests that submit `count` copies of a task, `size` in each."""
        full, remainder = divmod(count, size)
        last = [self.batch(remainder, task)] if remainder else []
        return [self.batch(size, task)] * full + last


class Client:
    """One connection, and the received part of the pending response."""

    def __init__(self, address: tuple[str, int], expected: Collection[bytes]) -> None:
        self._expected = expected
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def send(self, request: bytes) -> None:
        """Send a request; the server reads while we write, so this cannot deadlock."""
        self._received = b""
        self.socket.sendall(request)

    def request(self, request: bytes) -> bytes:
        """Send a request, and return the body of the response."""
        self.send(request)
        while (body := self.receive()) is None:
            pass
        return body

    def receive(self) -> bytes | None:
        """Read once; return the body if the response is complete, else None."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise UnexpectedResponse("the server closed the connection")
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or len(body) < _content_length(head):
            return None
        if head.split(b" ", 2)[1] not in self._expected:
            raise UnexpectedResponse(f"{head.splitlines()[0].decode()}: {body[:500].decode()}")
        return body


def send_all(
    requests: Requests,
    prepared: Iterable[bytes],
    clients: int,
    expected: Collection[bytes] = (b"201",),
) -> tuple[float, list[bytes]]:
    """Send all requests over `clients` connections; return the seconds it took, and the bodies."""
    remaining, bodies = iter(prepared), list[bytes]()
    with selectors.DefaultSelector() as selector:
        try:
            for _ in range(clients):
                client = Client(requests.address, expected)
                selector.register(client.socket, selectors.EVENT_READ, client)
            began = time.perf_counter()
            for key in list(selector.get_map().values()):
                _send_next(selector, key.data, remaining)
            while selector.get_map():
                for key, _ in selector.select():
                    body = key.data.receive()
                    if body is not None:
                        bodies.append(body)
                        _send_next(selector, key.data, remaining)
            return time.perf_counter() - began, bodies
        finally:
            for key in list(selector.get_map().values()):
                key.data.socket.close()


def latencies(requests: Requests, request: bytes, count: int) -> list[float]:
    """Send a request `count` times over one connection; return the latency of each in seconds."""
    client, seconds = Client(requests.address, (b"201",)), list[float]()
    try:
        for _ in range(count):
            began = time.perf_counter()
            client.request(request)
            seconds.append(time.perf_counter() - began)
        return seconds
    finally:
        client.socket.close()


def _send_next(
    selector: selectors.BaseSelector, client: Client, remaining: Iterator[bytes]
) -> None:
    request = next(remaining, None)
    if request is None:
        selector.unregister(client.socket)
        client.socket.close()
    else:
        client.send(request)


def _content_length(head: bytes) -> int:
    for line in head.lower().splitlines():
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    raise UnexpectedResponse("a response without Content-Length")
