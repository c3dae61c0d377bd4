"""An unauthenticated client costs little, whatever it sends."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn

from duly.http.connection_limits import MAX_HEAD_BYTES, LimitedHttpProtocol

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n"


LARGE = 2**26


class Impatient(LimitedHttpProtocol):
    """Gives up soon enough for a test."""

    client_timeout = 0.2
    lost: asyncio.Event

    def connection_lost(self, exc):
        """Say that a client is gone."""
        super().connection_lost(exc)
        self.lost.set()


class Resting(LimitedHttpProtocol):
    """Waits for another request no longer than a test does."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.timeout_keep_alive = 0.1


async def app(scope, receive, send):
    """Answer at once, without a look at the body: with a word, or more than anything holds."""
    assert scope["type"] == "http"
    if scope["path"] == "/headers":
        while (await receive()).get("more_body"):
            pass
    names = b",".join(name for name, _ in scope["headers"])
    words = {
        "/": [b"hello"],
        "/headers": [names],
        "/large": [b"l" * LARGE],
        "/parts": [b"p" * 2**20] * 64,
    }
    parts = words[scope["path"]]
    size = str(sum(map(len, parts))).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]}
    )
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class Server(uvicorn.Server):
    """A server that says when it listens, and leaves the signals alone."""

    async def startup(self, sockets=None):
        """Begin to listen."""
        await super().startup(sockets)
        self.listening.set()


async def serve(protocol: type[LimitedHttpProtocol]) -> AsyncIterator[int]:
    """Yield the port of a server whose connections are of the kind `protocol`."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        server = Server(uvicorn.Config(app, http=protocol, lifespan="off", log_config=None))
        server.listening = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(server._serve([sock]))
            await server.listening.wait()
            yield sock.getsockname()[1]
            server.should_exit = True


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async for port in serve(LimitedHttpProtocol):
        yield port


@pytest.fixture
async def impatient() -> AsyncIterator[int]:
    Impatient.lost = asyncio.Event()
    async for port in serve(Impatient):
        yield port


@pytest.fixture
async def resting() -> AsyncIterator[int]:
    async for port in serve(Resting):
        yield port


async def flood(port: int, start: bytes, more: bytes) -> bytes:
    """Send `start` and then `more` until the server hangs up; return what it said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = 0
    try:
        writer.write(start)
        while sent < 64 * MAX_HEAD_BYTES:
            writer.write(more)
            await writer.drain()
            sent += len(more)
    except ConnectionError:
        pass
    else:
        pytest.fail("all of it was taken")
    finally:
        writer.close()
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (REQUEST + b"X-Long: ", b"a" * 4096),
        (REQUEST, b"X-Many: a\r\n" * 400),
        (b"GET /", b"a" * 4096),
        (REQUEST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Late: ", b"a" * 4096),
    ],
    ids=["one long header", "many headers", "a long path", "a long trailer"],
)
async def test_a_head_without_end_is_refused(port, start, more):
    await flood(port, start, more)


async def test_a_body_that_nobody_reads_is_not_taken_for_ever(impatient):
    _, writer = await asyncio.open_connection("127.0.0.1", impatient)
    writer.write(REQUEST + b"Transfer-Encoding: chunked\r\n\r\n")
    async with asyncio.timeout(30):
        with pytest.raises(ConnectionError):
            while True:
                writer.write(b"1000\r\n" + b"b" * 4096 + b"\r\n")
                await writer.drain()
    writer.close()


async def test_trailers_are_no_headers(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    chunked = b"Transfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n"
    for trailer in (b"Authorization: Bearer k\r\n", b""):
        writer.write(b"GET /headers HTTP/1.1\r\nX-Head: 1\r\n" + chunked + trailer + b"\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(24) == b"x-head,transfer-encoding"
    writer.close()


async def test_a_head_and_a_body_that_are_large_enough_for_anybody_pass(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    cookie = b"X-Large: " + b"a" * (MAX_HEAD_BYTES - 1000) + b"\r\n"
    body = b"b" * 10 * MAX_HEAD_BYTES
    for _ in range(2):
        writer.write(REQUEST + cookie + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"hello")
    writer.close()


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", REQUEST + b"Content-Length: 9\r\n\r\nb"],
    ids=["nothing", "half a head", "half a body that nobody reads"],
)
async def test_a_client_that_falls_silent_is_cut_off(impatient, sent):
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient)
    writer.write(sent)
    if sent.startswith(REQUEST):
        await reader.readuntil(b"hello")
        writer.write(b"b")
    async with asyncio.timeout(10):
        assert b"hello" not in await reader.read()
    writer.close()


async def ask(port: int, path: bytes, more: bytes = b"") -> socket.socket:
    """Ask for `path` over a connection that holds next to nothing, and read nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, b"GET %s HTTP/1.1\r\nHost: here\r\n%s\r\n" % (path, more))
    return sock


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"], ids=["stays", "leaves"])
@pytest.mark.parametrize("path", [b"/large", b"/parts"])
async def test_a_client_that_does_not_read_its_answer_is_cut_off(impatient, path, more):
    with await ask(impatient, path, more):
        async with asyncio.timeout(30):
            await Impatient.lost.wait()


async def test_a_client_that_reads_gets_all_of_it_however_little_at_a_time(impatient, monkeypatch):
    monkeypatch.setattr(Impatient, "client_timeout", 2.0)
    with await ask(impatient, b"/parts") as sock:
        left = LARGE
        async with asyncio.timeout(60):
            while left > 0:
                # All of it takes longer than the server waits for a client that reads nothing.
                await asyncio.sleep(0.05 if left % 2**20 == 0 else 0)
                part = await asyncio.get_running_loop().sock_recv(
                    sock, min(65536, left % 2**20 or 65536)
                )
                assert part, f"the server hung up with {left} bytes left"
                left -= len(part)


async def test_a_client_that_asks_no_more_is_left(resting):
    reader, writer = await asyncio.open_connection("127.0.0.1", resting)
    # Both at a time: the server may close a connection that rests between two requests.
    writer.write(2 * (REQUEST + b"\r\n"))
    async with asyncio.timeout(10):
        for _ in range(2):
            await reader.readuntil(b"hello")
        assert await reader.read() == b""
    writer.close()
