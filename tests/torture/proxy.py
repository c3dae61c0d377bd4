"""A TCP proxy that makes connections slow, silent or short-lived.

It runs as a process of its own on the host of the server behind it, and is told by lines
of JSON on a unix socket how to behave from now on:

    python -m tests.torture.proxy ADDRESS PORT UPSTREAM-PORT CONTROL-SOCKET
"""

import asyncio
import contextlib
import json
import socket
import struct
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

CHUNK = 65536


@dataclass(frozen=True)
class Behaviour:
    """What the proxy does to every connection; as it is here, nothing."""

    latency: float = 0.0
    """Seconds by which everything is late, in each direction."""
    stall: str = ""
    """`all`, `requests` or `answers`: these stay here until that is over."""
    cut_after: int = 0
    """Answered bytes after which a connection is reset."""


class Proxy:
    """Passes bytes on between clients and one server."""

    def __init__(self, address: str, upstream: int) -> None:
        self._address = address
        self._upstream = upstream
        self._behaviour = Behaviour()
        self._changed = asyncio.Condition()

    async def serve(self, port: int, control: str) -> None:
        """Listen to clients and to orders until the process is ended."""
        clients = await asyncio.start_server(self._pass, self._address, port)
        orders = await asyncio.start_unix_server(self._obey, control)
        async with clients, orders:
            await asyncio.gather(clients.serve_forever(), orders.serve_forever())

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            async with self._changed:
                self._behaviour = Behaviour(**json.loads(line))
                self._changed.notify_all()
            writer.write(b"done\n")
            await writer.drain()
        writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(self._address, self._upstream)
        except OSError:
            _reset(writer)
            return
        ways = [
            asyncio.create_task(self._pump(reader, there[1], "requests")),
            asyncio.create_task(self._pump(there[0], writer, "answers")),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for end in (writer, there[1]):
            _reset(end)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str
    ) -> None:
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)
        sender = asyncio.create_task(self._send(late, writer, kind))
        reading = asyncio.create_task(self._read(reader, late))
        try:
            await asyncio.wait((sender, reading), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await sender  # what was said before the end still arrives
        finally:
            sender.cancel()
            reading.cancel()

    async def _read(
        self, reader: asyncio.StreamReader, late: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        now = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await late.put((now() + self._behaviour.latency, data))
        await late.put((now(), b""))

    async def _send(
        self, late: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, kind: str
    ) -> None:
        passed = 0
        while True:
            due, data = await late.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            async with self._changed:
                await self._changed.wait_for(lambda: self._behaviour.stall not in ("all", kind))
            passed += len(data)
            limit = self._behaviour.cut_after
            if not data or (limit and kind == "answers" and passed > limit):
                return
            writer.write(data)
            try:
                await writer.drain()
            except OSError:
                return


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a RST: nobody is told that all is well."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def order(control: Path, behaviour: Behaviour) -> None:
    """Tell a running proxy how to behave, and wait until it does."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10)
        line.connect(str(control))
        line.sendall(json.dumps(asdict(behaviour)).encode() + b"\n")
        assert line.recv(16) == b"done\n"


def main() -> None:
    address, port, upstream, control = sys.argv[1:]
    asyncio.run(Proxy(address, int(upstream)).serve(int(port), control))


if __name__ == "__main__":
    main()
