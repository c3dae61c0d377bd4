"""A TCP proxy that makes connections slow, silent or short-lived.

It runs as a separate process on the host of the server behind it. Its behaviour is set by lines of
JSON on a unix socket:

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
    """What the proxy does to every connection; by default nothing."""

    latency: float = 0.0
    """Delay in seconds, in each direction."""
    stall: str = ""
    """`all`, `requests` or `responses`: what is held back until the behaviour changes."""
    cut_after: int = 0
    """Bytes of responses after which a connection is reset; 0 means never."""


class Proxy:
    """Forwards bytes between clients and one server."""

    def __init__(self, address: str, upstream: int) -> None:
        self._address = address
        self._upstream = upstream
        self._behaviour = Behaviour()
        self._changed = asyncio.Condition()

    async def serve(self, port: int, control: str) -> None:
        """Listen for clients and for control messages until the process ends."""
        clients = await asyncio.start_server(self._forward, self._address, port)
        control_server = await asyncio.start_unix_server(self._handle_control, control)
        async with clients, control_server:
            await asyncio.gather(clients.serve_forever(), control_server.serve_forever())

    async def _handle_control(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while line := await reader.readline():
            async with self._changed:
                self._behaviour = Behaviour(**json.loads(line))
                self._changed.notify_all()
            writer.write(b"done\n")
            await writer.drain()
        writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection(self._address, self._upstream)
        except OSError:
            _reset(writer)
            return
        pumps = [
            asyncio.create_task(self._pump(reader, upstream[1], "requests")),
            asyncio.create_task(self._pump(upstream[0], writer, "responses")),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (writer, upstream[1]):
            _reset(end)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str
    ) -> None:
        delayed: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)
        sender = asyncio.create_task(self._send(delayed, writer, kind))
        reading = asyncio.create_task(self._read(reader, delayed))
        try:
            await asyncio.wait((sender, reading), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await sender  # flush what was received before the end
        finally:
            sender.cancel()
            reading.cancel()

    async def _read(
        self, reader: asyncio.StreamReader, delayed: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        now = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await delayed.put((now() + self._behaviour.latency, data))
        await delayed.put((now(), b""))

    async def _send(
        self, delayed: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, kind: str
    ) -> None:
        sent = 0
        while True:
            due, data = await delayed.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            async with self._changed:
                await self._changed.wait_for(lambda: self._behaviour.stall not in ("all", kind))
            sent += len(data)
            limit = self._behaviour.cut_after
            if not data or (limit and kind == "responses" and sent > limit):
                return
            writer.write(data)
            try:
                await writer.drain()
            except OSError:
                return


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a RST instead of a FIN."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def set_behaviour(control: Path, behaviour: Behaviour) -> None:
    """Set the behaviour of a running proxy, and wait until it is in effect."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(control))
        sock.sendall(json.dumps(asdict(behaviour)).encode() + b"\n")
        assert sock.recv(16) == b"done\n"


def main() -> None:
    address, port, upstream, control = sys.argv[1:]
    asyncio.run(Proxy(address, int(upstream)).serve(int(port), control))


if __name__ == "__main__":
    main()
