"""A server that sleeps while nobody asks anything wakes up to end."""

import asyncio
import signal
import socket
import subprocess
import sys

import pytest
import uvicorn

from duly import http_server
from duly.http_server import HttpServer

FOREVER = 3600.0
PROGRAM = """
import uvicorn
from duly import http_server

class Server(http_server.HttpServer):
    async def on_tick(self, counter):
        if ends := await super().on_tick(counter):
            return ends
        print("asleep", flush=True)

async def app(scope, receive, send):
    pass

http_server.DATE = 3600.0
Server(uvicorn.Config(app, port=0, lifespan="off", loop="LOOP", log_config=None)).run()
"""


async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


class Counting(HttpServer):
    """Counts how often it wakes up by itself."""

    woken = 0

    async def on_tick(self, counter: int) -> bool:
        self.woken += 1
        return await super().on_tick(counter)


async def get(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


async def test_it_answers_without_waking_up_in_between_and_ends_when_it_is_told_to(monkeypatch):
    monkeypatch.setattr(http_server, "DATE", FOREVER)
    server = Counting(uvicorn.Config(app, lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with asyncio.TaskGroup() as group:
            group.create_task(server._serve([sock]))
            assert (await get(sock.getsockname()[1])).startswith(b"HTTP/1.1 204")
            assert server.woken == 1
            server.end()
    assert server.woken == 2


async def test_the_date_is_kept_current(monkeypatch):
    monkeypatch.setattr(http_server, "DATE", 0.001)
    server = Counting(uvicorn.Config(app, lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with asyncio.TaskGroup() as group:
            group.create_task(server._serve([sock]))
            while server.woken < 3:
                await asyncio.sleep(0)
            server.end()
    assert server.server_state.default_headers[0][0] == b"date"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_though_it_sleeps(loop: str, signum: signal.Signals) -> None:
    program = [sys.executable, "-c", PROGRAM.replace("LOOP", loop)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"asleep\n"
        process.send_signal(signum)
        try:
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == -signum
