"""The HTTP server sleeps while idle, and wakes up to shut down."""

import asyncio
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import uvicorn

from duly import clock
from duly.http.server import HttpServer


async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


class Restless(HttpServer):
    """Must never be asked whether it has anything to do."""

    async def on_tick(self, counter: int) -> bool:
        raise AssertionError("it woke up by itself")


async def get(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


async def test_it_answers_without_waking_up_in_between_and_ends_when_it_is_told_to():
    server = Restless(uvicorn.Config(app, lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with asyncio.TaskGroup() as group:
            group.create_task(server._serve([sock]))
            assert (await get(sock.getsockname()[1])).startswith(b"HTTP/1.1 204")
            server.stop()


async def test_each_answer_has_the_date_of_its_request(monkeypatch):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(clock, "wall", lambda: at)
    server = Restless(uvicorn.Config(app, lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with asyncio.TaskGroup() as group:
            group.create_task(server._serve([sock]))
            for seconds in (0.0, 0.4, 1.0, 3600.0):
                at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
                date = format_datetime(at, usegmt=True).encode()
                assert b"date: %b\r\n" % date in await get(sock.getsockname()[1])
            server.stop()
