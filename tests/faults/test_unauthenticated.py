"""Unauthenticated clients can neither fill the log nor bypass authentication."""

import socket

import pytest

from duly.launch.logs import LINES_PER_WINDOW
from tests.faults.lab import Lab

MALFORMED = {
    "garbage": b"\x00\xff\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 64,
    "an unknown method": b"BREW /v1/tasks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "a path that is none": b"GET /%ff\xff HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "two lengths": b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "an upgrade": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "a chunk without a size": b"POST /v1/tasks HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    "a wrong key": b"GET /v1/tasks HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n",
}
REQUESTS = 100


def send(lab: Lab, request: bytes) -> bytes:
    """Send a request; return the first line of the response."""
    with socket.create_connection(("127.0.0.1", lab.port), timeout=10) as sock:
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        return sock.recv(65536).partition(b"\r\n")[0]


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_requests_are_logged_at_a_bounded_rate(lab: Lab, name: str) -> None:
    server = lab.start_server()
    before = len(server.log.read_text().splitlines())
    for _ in range(REQUESTS):
        send(lab, MALFORMED[name])
    # A last request with a response: all earlier ones have been logged by then.
    assert send(lab, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") == b"HTTP/1.1 200 OK"
    assert len(server.log.read_text().splitlines()) - before <= LINES_PER_WINDOW


def test_a_key_in_a_trailer_is_ignored(lab: Lab) -> None:
    lab.start_server()
    body = b'{"command":["true"]}'
    request = b"POST /v1/tasks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    request += b"%x\r\n%b\r\n0\r\nAuthorization: Bearer %b\r\n\r\n" % (
        len(body),
        body,
        lab.key.encode(),
    )
    assert send(lab, request) == b"HTTP/1.1 401 Unauthorized"
