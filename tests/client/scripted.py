"""An HTTP server that sends scripted responses, and closes connections where a real one fails."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

CLOSE = b""
"""Close the connection without a response."""


def response(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    """Return a complete response."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(*chunks: bytes, whole: bool = True) -> bytes:
    """Return a chunked response, complete or truncated."""
    parts = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    end = b"0\r\n\r\n" if whole else b""
    return b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(parts) + end


@dataclass
class Scripted:
    """Sends each request the next response, and records the requests."""

    url: str
    script: list[bytes]
    requests: list[bytes] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return the first line of each request."""
        return [request.split(b"\r\n", 1)[0].decode() for request in self.requests]


@contextmanager
def scripted(*script: bytes) -> Iterator[Scripted]:
    """Serve `script`, one response per request, each on its own connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    served = Scripted(f"http://127.0.0.1:{listener.getsockname()[1]}", list(script))

    def serve() -> None:
        for text in script:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                served.requests.append(_read(connection))
                connection.sendall(text.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _read(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    while lengths and len(body) < lengths[0]:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
