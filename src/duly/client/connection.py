"""The sync transport: http.client, because importing anything larger takes longer than a call."""

import http.client
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from duly import clock
from duly.client.call import FILE_TYPE, Answer, Call
from duly.client.endpoint import Endpoint
from duly.client.retry import CUT, NoAnswer

if TYPE_CHECKING:
    from ssl import SSLContext

CONNECT_TIMEOUT = 5.0
IDLE_LIMIT = 4.0
"""Servers close a connection that was idle for 5 s; one that is nearly that old is not reused."""
CHUNK = 64 * 1024


class Connections:
    """Kept-alive connections to the servers; several threads may use them at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._headers = endpoint.headers
        self._ca_file = endpoint.ca_file
        self._tls: SSLContext | None = None
        self._idle: list[tuple[tuple[int, str], float, http.client.HTTPConnection]] = []

    def exchange(self, url: str, call: Call[Any]) -> Answer:
        """Send `call` to the server at `url` and read the whole answer."""
        connection, response = self._send(url, call)
        answer = _read(connection, response)
        if response.will_close:
            connection.close()
        else:
            self._idle.append((_place(url), clock.monotonic(), connection))
        return answer

    def stream(self, url: str, call: Call[bytes]) -> "Stream":
        """Send `call`, and return the answer to be read as it arrives."""
        connection, response = self._send(url, call)
        if response.status != 200:
            answer = _read(connection, response)
            connection.close()
            return Stream(answer)
        return Stream(Answer(200, b""), connection, response)

    def close(self) -> None:
        """Close every connection that is idle."""
        while self._idle:
            self._idle.pop()[2].close()

    def _send(
        self, url: str, call: Call[Any]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._reuse(url) or self._open(url)
        connection.sock.settimeout(call.timeout)
        path = f"{urlsplit(url).path}{call.path}"
        target = f"{path}?{urlencode(call.query)}" if call.query else path
        headers = {**self._headers, **call.headers}
        try:
            if call.file is not None:
                _send_file(connection, call.method, target, call.file, headers)
            else:
                if call.body is not None:
                    headers["Content-Type"] = "application/json"
                connection.request(call.method, target, body=call.body, headers=headers)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswer(_describe(error), sent=True) from error
        except BaseException:
            connection.close()
            raise

    def _reuse(self, url: str) -> http.client.HTTPConnection | None:
        while self._idle:
            known, since, connection = self._idle.pop()
            if known == _place(url) and clock.monotonic() - since < IDLE_LIMIT:
                return connection
            connection.close()
        return None

    def _open(self, url: str) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, parts.port, timeout=CONNECT_TIMEOUT, context=self._context()
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=CONNECT_TIMEOUT)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            connection.close()
            untrusted = type(error).__name__ == "SSLCertVerificationError"
            raise NoAnswer(_describe(error), sent=False, hopeless=untrusted) from error
        # A stream may be silent for hours; the kernel notices when the other side is gone.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        return connection

    def _context(self) -> "SSLContext":
        if self._tls is None:
            import ssl

            try:
                self._tls = ssl.create_default_context(cafile=self._ca_file)
            except OSError as error:
                message = f"the certificates in {self._ca_file} cannot be used ({error})"
                raise NoAnswer(message, sent=False, hopeless=True) from error
        return self._tls


class Stream:
    """An answer that is read as it arrives; iterating ends the connection."""

    def __init__(
        self,
        answer: Answer,
        connection: http.client.HTTPConnection | None = None,
        response: http.client.HTTPResponse | None = None,
    ) -> None:
        self.answer = answer
        self._connection = connection
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes as they come; raises NoAnswer when the connection breaks."""
        if self._connection is None or self._response is None:
            return
        try:
            while chunk := self._response.read1(CHUNK):
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(_describe(error), sent=True) from error
        finally:
            self._connection.close()


def _place(url: str) -> tuple[int, str]:
    """Return what a connection belongs to: after a fork, parent and child must not share one."""
    return os.getpid(), url


def _send_file(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    path: Path,
    headers: dict[str, str],
) -> None:
    """Send a file as it is read, and never hold the whole of it."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        own = {"Content-Type": FILE_TYPE, "Content-Length": str(size)}
        # Cut off, it may have been told why the other side wants no more of it.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, target, body=file, headers={**headers, **own})


def _read(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Answer:
    try:
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise NoAnswer(_describe(error), sent=True) from error
    except BaseException:
        connection.close()
        raise
    return Answer(response.status, body, response.getheader("Retry-After"))


def _describe(error: Exception) -> str:
    """Say in a few words what went wrong on the way."""
    match error:
        case ConnectionRefusedError():
            return "the connection was refused"
        case TimeoutError():
            return "there was no answer in time"
        case socket.gaierror():
            return "its name is not known"
        case http.client.HTTPException() | ConnectionError():
            return CUT
        case _ if type(error).__name__ == "SSLCertVerificationError":
            why = getattr(error, "verify_message", "")
            return f"its certificate is not trusted, {why} (DULY_CA_FILE: the authority to trust)"
        case _ if type(error).__name__ == "SSLError":
            return "it does not speak TLS; perhaps its URL begins with http://"
        case OSError(strerror=str(text)):
            return text
        case _:
            return str(error) or type(error).__name__
