"""The async transport: HTTP/1.1 on asyncio streams, parsed by h11.

It needs a few hundred kilobytes; an async HTTP library would be half of a plain installation.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import h11

from duly import clock
from duly.client.call import Call, Response, read_error
from duly.client.endpoint import Endpoint
from duly.client.retry import CONNECTION_CLOSED, NoResponse
from duly.client.sync_transport import (
    CHUNK_BYTES,
    CONNECT_TIMEOUT_SECONDS,
    MAX_IDLE_SECONDS,
    TlsContext,
    describe_failure,
    enable_keepalive,
    request_headers,
    request_target,
)


class AsyncConnectionPool:
    """A pool of keep-alive connections to the servers, bound to one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._headers = endpoint.headers
        self._tls_context = TlsContext(endpoint.ca_file)
        self._idle: list[tuple[str, float, AsyncConnection]] = []

    async def exchange(self, url: str, call: Call[Any]) -> Response:
        """Send `call` to the server at `url` and read the whole response."""
        async with self._send(url, call) as (connection, response):
            return await _read(connection, response)

    async def stream(self, url: str, call: Call[bytes], skip: int) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, without its first `skip` bytes."""
        async with self._send(url, call) as (connection, response):
            if response.status_code != 200:
                raise read_error(await _read(connection, response))
            async for chunk in connection.body():
                if skip < len(chunk):
                    yield chunk[skip:]
                skip = max(skip - len(chunk), 0)

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop()[2].close()
        await asyncio.sleep(0)  # asyncio closes sockets in the next iteration of its loop

    @asynccontextmanager
    async def _send(
        self, url: str, call: Call[Any]
    ) -> AsyncIterator[tuple["AsyncConnection", h11.Response]]:
        """Send `call`; yield the connection and the head of the response, whose body follows."""
        connection = self._reuse(url) or await self._open(url)
        try:
            connection.timeout = call.timeout
            host = urlsplit(url).netloc.rpartition("@")[2]
            headers = {"Host": host, **request_headers(call, self._headers)}
            request = h11.Request(
                method=call.method, target=request_target(url, call), headers=list(headers.items())
            )
            await connection.send(request, call.file or call.body)
            yield connection, await connection.head()
        except (OSError, h11.RemoteProtocolError) as error:
            raise NoResponse(_describe_failure(error), sent=True) from error
        finally:
            if connection.is_reusable():
                self._idle.append((url, clock.monotonic(), connection))
            else:
                connection.close()

    def _reuse(self, url: str) -> "AsyncConnection | None":
        while self._idle:
            pool_key, idle_since, connection = self._idle.pop()
            is_fresh = clock.monotonic() - idle_since < MAX_IDLE_SECONDS
            if pool_key == url and is_fresh and connection.is_open():
                return connection
            connection.close()
        return None

    async def _open(self, url: str) -> "AsyncConnection":
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        tls = self._tls_context.context() if is_tls else None
        port = parts.port or (443 if is_tls else 80)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
        except (OSError, UnicodeError) as error:
            untrusted = type(error).__name__ == "SSLCertVerificationError"
            raise NoResponse(_describe_failure(error), sent=False, permanent=untrusted) from error
        enable_keepalive(writer.get_extra_info("socket"))
        return AsyncConnection(reader, writer)


class AsyncConnection:
    """One connection and its HTTP/1.1 state machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.CLIENT)
        self.timeout: float | None = None
        """Read and write timeout in seconds."""

    async def send(self, request: h11.Request, content: bytes | Path | None) -> None:
        """Send a request; a file is read chunk by chunk."""
        await self._write(request)
        if isinstance(content, Path):
            # A server that rejects an upload early sends its response before closing: read that.
            with suppress(BrokenPipeError, ConnectionResetError), content.open("rb") as file:
                await self._write_file(file)
            return
        if content:
            await self._write(h11.Data(content))
        await self._write(h11.EndOfMessage())

    async def head(self) -> h11.Response:
        """Return the status and headers of the response."""
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Response):
                return event

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body of the response as it arrives."""
        while isinstance(event := await self._next_event(), h11.Data):
            yield bytes(event.data)

    def is_open(self) -> bool:
        """Return True if it belongs to the running loop and the peer has not closed it."""
        return self._loop is asyncio.get_running_loop() and not self._reader.at_eof()

    def is_reusable(self) -> bool:
        """Return True if another request may follow, and reset the state for it."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        """Close it at once, whatever is under way."""
        if not self._loop.is_closed():
            self._writer.transport.abort()

    async def _write_file(self, file: BinaryIO) -> None:
        while chunk := file.read(CHUNK_BYTES):
            await self._write(h11.Data(chunk))
        await self._write(h11.EndOfMessage())

    async def _write(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
        async with asyncio.timeout(self.timeout):
            await self._writer.drain()

    async def _next_event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(self.timeout):
                self._http.receive_data(await self._reader.read(CHUNK_BYTES))
        return event


async def _read(connection: AsyncConnection, response: h11.Response) -> Response:
    body = b"".join([chunk async for chunk in connection.body()])
    headers = {name: value.decode("latin-1") for name, value in response.headers}
    return Response(response.status_code, body, headers.get(b"retry-after"))


def _describe_failure(error: Exception) -> str:
    match error:
        case h11.RemoteProtocolError():
            return CONNECTION_CLOSED
        case OSError(errno=None) if type(error) is OSError:
            # asyncio's summary for a name with several addresses that failed for different reasons.
            return "no connection could be made"
        case _:
            return describe_failure(error)
