"""The async transport: HTTP/1.1 on asyncio's streams, with h11 for what the bytes mean.

It needs a few hundred kilobytes where an async HTTP library would be half of a plain installation.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import h11

from duly import clock
from duly.client.call import Answer, Call, read_error
from duly.client.connection import (
    CHUNK,
    CONNECT_TIMEOUT,
    IDLE_LIMIT,
    Trust,
    describe,
    headers_of,
    keep_alive,
    target_of,
)
from duly.client.endpoint import Endpoint
from duly.client.retry import CUT, NoAnswer


class Session:
    """Kept-alive connections of one event loop to the servers."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._headers = endpoint.headers
        self._trust = Trust(endpoint.ca_file)
        self._idle: list[tuple[str, float, Connection]] = []

    async def exchange(self, url: str, call: Call[Any]) -> Answer:
        """Send `call` to the server at `url` and read the whole answer."""
        async with self._send(url, call) as (connection, response):
            return await _read(connection, response)

    async def stream(self, url: str, call: Call[bytes], skip: int) -> AsyncIterator[bytes]:
        """Yield the answer's bytes as they come, from the one after `skip` on."""
        async with self._send(url, call) as (connection, response):
            if response.status_code != 200:
                raise read_error(await _read(connection, response))
            async for chunk in connection.body():
                if skip < len(chunk):
                    yield chunk[skip:]
                skip = max(skip - len(chunk), 0)

    async def close(self) -> None:
        """Close every connection that is idle."""
        while self._idle:
            self._idle.pop()[2].close()
        await asyncio.sleep(0)  # asyncio closes a socket in the next round of its loop

    @asynccontextmanager
    async def _send(
        self, url: str, call: Call[Any]
    ) -> AsyncIterator[tuple["Connection", h11.Response]]:
        """Send `call`, and give the answer's head with the connection that its body comes on."""
        connection = self._reuse(url) or await self._open(url)
        try:
            connection.timeout = call.timeout
            host = urlsplit(url).netloc.rpartition("@")[2]
            headers = {"Host": host, **headers_of(call, self._headers)}
            request = h11.Request(
                method=call.method, target=target_of(url, call), headers=list(headers.items())
            )
            await connection.send(request, call.file or call.body)
            yield connection, await connection.head()
        except (OSError, h11.RemoteProtocolError) as error:
            raise NoAnswer(_describe(error), sent=True) from error
        finally:
            if connection.is_reusable():
                self._idle.append((url, clock.monotonic(), connection))
            else:
                connection.close()

    def _reuse(self, url: str) -> "Connection | None":
        while self._idle:
            known, since, connection = self._idle.pop()
            is_fresh = clock.monotonic() - since < IDLE_LIMIT
            if known == url and is_fresh and connection.is_open():
                return connection
            connection.close()
        return None

    async def _open(self, url: str) -> "Connection":
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        tls = self._trust.context() if is_tls else None
        port = parts.port or (443 if is_tls else 80)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
        except (OSError, UnicodeError) as error:
            untrusted = type(error).__name__ == "SSLCertVerificationError"
            raise NoAnswer(_describe(error), sent=False, hopeless=untrusted) from error
        keep_alive(writer.get_extra_info("socket"))
        return Connection(reader, writer)


class Connection:
    """One connection, with what HTTP/1.1 allows on it next."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.CLIENT)
        self.timeout: float | None = None
        """Seconds of silence that are borne."""

    async def send(self, request: h11.Request, content: bytes | Path | None) -> None:
        """Send a request; of a file never more than a chunk is held."""
        await self._write(request)
        if isinstance(content, Path):
            # Cut off, it may have been told why the other side wants no more of it.
            with suppress(BrokenPipeError, ConnectionResetError), content.open("rb") as file:
                await self._write_file(file)
            return
        if content:
            await self._write(h11.Data(content))
        await self._write(h11.EndOfMessage())

    async def head(self) -> h11.Response:
        """Return the status and the headers of the answer."""
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Response):
                return event

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body of the answer as it comes."""
        while isinstance(event := await self._next_event(), h11.Data):
            yield bytes(event.data)

    def is_open(self) -> bool:
        """Say whether it belongs to the running loop and the other side has not closed it."""
        return self._loop is asyncio.get_running_loop() and not self._reader.at_eof()

    def is_reusable(self) -> bool:
        """Say whether another request may follow, and prepare for it."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        """Close it at once, whatever is under way."""
        if not self._loop.is_closed():
            self._writer.transport.abort()

    async def _write_file(self, file: BinaryIO) -> None:
        while chunk := file.read(CHUNK):
            await self._write(h11.Data(chunk))
        await self._write(h11.EndOfMessage())

    async def _write(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
        async with asyncio.timeout(self.timeout):
            await self._writer.drain()

    async def _next_event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(self.timeout):
                self._http.receive_data(await self._reader.read(CHUNK))
        return event


async def _read(connection: Connection, response: h11.Response) -> Answer:
    body = b"".join([chunk async for chunk in connection.body()])
    headers = {name: value.decode("latin-1") for name, value in response.headers}
    return Answer(response.status_code, body, headers.get(b"retry-after"))


def _describe(error: Exception) -> str:
    match error:
        case h11.RemoteProtocolError():
            return CUT
        case OSError(errno=None) if type(error) is OSError:
            # A name with several addresses, each of which failed for another reason.
            return "no connection could be made"
        case _:
            return describe(error)
