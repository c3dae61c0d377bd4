"""Answers that the connection writes by itself are those that it would pass on."""

import asyncio
import socket

import pytest
import uvicorn

from duly.api.answer import WRITE, Answer
from duly.api.refusing_http import RefusingHttp

MORE = [(b"x-more", b"of all")]
ASKED = b"POST /%b HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\n{}"
LAST = ASKED.replace(b"Host", b"Connection: close\r\nHost")


class Server(uvicorn.Server):
    """A server that says when it listens, and leaves the signals alone."""

    async def startup(self, sockets=None):
        """Begin to listen."""
        await super().startup(sockets)
        self.listening.set()


class App:
    """Answers with its path, by the connection unless that cannot or is not asked to."""

    def __init__(self):
        self.written: list[tuple[str, bool]] = []
        self.let_go = asyncio.Event()

    async def __call__(self, scope, receive, send):
        """Answer a request."""
        path = scope["path"][1:]
        if path == "late":
            await self.let_go.wait()
        told = {"x-told": "a\r\nb"} if path == "broken" else {"x-told": "a"}
        answer = Answer(path.encode(), 201, headers=told)
        lines = b"".join(b"%b: %b\r\n" % line for line in MORE)
        is_written = path != "passed" and scope[WRITE](scope, answer, lines)
        self.written.append((path, is_written))
        if not is_written:
            answer.headers += MORE
            await answer(scope, receive, send)


@pytest.fixture
async def served():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        app = App()
        config = uvicorn.Config(
            app, http=RefusingHttp, lifespan="off", log_config=None, access_log=False
        )
        server = Server(config)
        server.listening = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(server._serve([sock]))
            await server.listening.wait()
            yield app, sock.getsockname()[1]
            server.should_exit = True


async def ask(port: int, *requests: bytes) -> bytes:
    """Send requests one behind the other; return all that comes until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(requests))
    async with asyncio.timeout(30):
        told = await reader.read()
    writer.close()
    return told


def lines_of(told: bytes) -> list[bytes]:
    head, _, body = told.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    return [first, *sorted(line for line in lines if not line.startswith(b"date")), body]


async def test_what_is_written_is_what_would_be_passed_on(served):
    app, port = served
    written, passed = [await ask(port, LAST % path) for path in (b"writes", b"passed")]
    assert app.written == [("writes", True), ("passed", False)]
    assert lines_of(written) == lines_of(passed.replace(b"passed", b"writes"))


async def test_answers_come_in_the_order_of_what_was_asked(served):
    app, port = served
    asking = asyncio.create_task(ask(port, ASKED % b"late", ASKED % b"second", LAST % b"third"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASKED % b"other")
    await reader.readuntil(b"other")
    writer.close()
    app.let_go.set()
    told = await asking
    assert [told.index(path) for path in (b"late", b"second", b"third")] == sorted(
        told.index(path) for path in (b"late", b"second", b"third")
    )
    assert told.count(b"HTTP/1.1 201") == 3


async def test_a_header_with_a_line_break_is_not_written(served):
    app, port = served
    told = await ask(port, ASKED % b"broken")
    assert app.written == [("broken", False)]
    assert told == b""
