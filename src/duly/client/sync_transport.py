"""The sync transport, on http.client: importing a larger library takes longer than a call."""

import http.client
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from duly import clock
from duly.client.call import FILE_CONTENT_TYPE, Call, Response
from duly.client.endpoint import Endpoint
from duly.client.retry import CONNECTION_CLOSED, NoResponse

if TYPE_CHECKING:
    from ssl import SSLContext

CONNECT_TIMEOUT_SECONDS = 5.0
MAX_IDLE_SECONDS = 4.0
"""Servers close connections that were idle for 5 s; one nearly that old is not reused."""
CHUNK_BYTES = 64 * 1024
METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests carry Content-Length even when the body is empty."""


class ConnectionPool:
    """A thread-safe pool of keep-alive connections to the servers."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._headers = endpoint.headers
        self._tls_context = TlsContext(endpoint.ca_file)
        self._idle: list[tuple[tuple[int, str], float, http.client.HTTPConnection]] = []

    def exchange(self, url: str, call: Call[Any]) -> Response:
        """Send `call` to the server at `url` and read the whole response."""
        connection, response = self._send(url, call)
        whole_response = _read(connection, response)
        if response.will_close:
            connection.close()
        else:
            self._idle.append((_pool_key(url), clock.monotonic(), connection))
        return whole_response

    def stream(self, url: str, call: Call[bytes]) -> "Stream":
        """Send `call` and return its response as a stream."""
        connection, response = self._send(url, call)
        if response.status != 200:
            error_response = _read(connection, response)
            connection.close()
            return Stream(error_response)
        return Stream(Response(200, b""), connection, response)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop()[2].close()

    def _send(
        self, url: str, call: Call[Any]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._reuse(url) or self._open(url)
        connection.sock.settimeout(call.timeout)
        target, headers = request_target(url, call), request_headers(call, self._headers)
        try:
            if call.file is not None:
                _send_file(connection, call.method, target, call.file, headers)
            else:
                connection.request(call.method, target, body=call.body, headers=headers)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoResponse(describe_failure(error), sent=True) from error
        except BaseException:
            connection.close()
            raise

    def _reuse(self, url: str) -> http.client.HTTPConnection | None:
        while self._idle:
            pool_key, idle_since, connection = self._idle.pop()
            if pool_key == _pool_key(url) and clock.monotonic() - idle_since < MAX_IDLE_SECONDS:
                return connection
            connection.close()
        return None

    def _open(self, url: str) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host,
                parts.port,
                timeout=CONNECT_TIMEOUT_SECONDS,
                context=self._tls_context.context(),
            )
        else:
            connection = http.client.HTTPConnection(
                host, parts.port, timeout=CONNECT_TIMEOUT_SECONDS
            )
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            connection.close()
            untrusted = type(error).__name__ == "SSLCertVerificationError"
            raise NoResponse(describe_failure(error), sent=False, permanent=untrusted) from error
        enable_keepalive(connection.sock)
        return connection


class TlsContext:
    """The TLS context of a client, loaded at the first connection with TLS."""

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self._context: SSLContext | None = None

    def context(self) -> "SSLContext":
        """Return the context; raises NoResponse if the CA file cannot be loaded."""
        if self._context is None:
            import ssl

            try:
                self._context = ssl.create_default_context(cafile=self._ca_file)
            except OSError as error:
                message = f"the certificates in {self._ca_file} cannot be loaded ({error})"
                raise NoResponse(message, sent=False, permanent=True) from error
        return self._context


class Stream:
    """A response that is read as it arrives; iterating it to the end closes the connection."""

    def __init__(
        self,
        head: Response,
        connection: http.client.HTTPConnection | None = None,
        body: http.client.HTTPResponse | None = None,
    ) -> None:
        self.head = head
        """The response without its body, or the whole response if it is an error."""
        self._connection = connection
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        """Yield chunks of the body as they arrive; raises NoResponse if the connection breaks."""
        if self._connection is None or self._body is None:
            return
        try:
            while chunk := self._body.read1(CHUNK_BYTES):
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise NoResponse(describe_failure(error), sent=True) from error
        finally:
            self._connection.close()


def request_target(url: str, call: Call[Any]) -> str:
    """Return the request target: the path with the encoded query."""
    path = f"{urlsplit(url).path}{call.path}"
    return f"{path}?{urlencode(call.query)}" if call.query else path


def request_headers(call: Call[Any], own: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request, including its content type and length."""
    headers = {**own, **call.headers}
    if call.file is not None:
        length = call.file.stat().st_size
        return headers | {"Content-Type": FILE_CONTENT_TYPE, "Content-Length": str(length)}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    if call.body is not None or call.method in METHODS_WITH_BODY:
        headers["Content-Length"] = str(len(call.body or b""))
    return headers


def enable_keepalive(sock: socket.socket) -> None:
    """Enable TCP keepalive, so that a dead peer is noticed on a stream that is silent for hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def _pool_key(url: str) -> tuple[int, str]:
    """Return the pool key; it has the pid because a forked child must not share connections."""
    return os.getpid(), url


def _send_file(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    path: Path,
    headers: dict[str, str],
) -> None:
    """Send a file without reading it into memory."""
    # A server that rejects an upload early sends its response before closing: read that.
    with path.open("rb") as file, suppress(BrokenPipeError, ConnectionResetError):
        connection.request(method, target, body=file, headers=headers)


def _read(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Response:
    try:
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise NoResponse(describe_failure(error), sent=True) from error
    except BaseException:
        connection.close()
        raise
    return Response(response.status, body, response.getheader("Retry-After"))


def describe_failure(error: Exception) -> str:
    """Describe a connection error in a few words."""
    match error:
        case ConnectionRefusedError():
            return "the connection was refused"
        case TimeoutError():
            return "the request timed out"
        case socket.gaierror():
            return "the host name cannot be resolved"
        case http.client.HTTPException() | ConnectionError():
            return CONNECTION_CLOSED
        case _ if type(error).__name__ == "SSLCertVerificationError":
            why = getattr(error, "verify_message", "")
            return f"its certificate is not trusted: {why} (set DULY_CA_FILE to the CA to trust)"
        case _ if type(error).__name__ == "SSLError":
            return "the TLS handshake failed; if the server has no TLS, use an http:// URL"
        case OSError(strerror=str(text)):
            return text
        case _:
            return str(error) or type(error).__name__
