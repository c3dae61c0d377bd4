"""The sync transport: http.client, because importing anything larger takes longer than a call."""

import http.client
import os
import socket
from collections.abc import Iterator, Mapping
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
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests say that they are empty, if they are."""


class Connections:
    """Kept-alive connections to the servers; several threads may use them at once."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._headers = endpoint.headers
        self._trust = Trust(endpoint.ca_file)
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
        target, headers = target_of(url, call), headers_of(call, self._headers)
        try:
            if call.file is not None:
                _send_file(connection, call.method, target, call.file, headers)
            else:
                connection.request(call.method, target, body=call.body, headers=headers)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswer(describe(error), sent=True) from error
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
                host, parts.port, timeout=CONNECT_TIMEOUT, context=self._trust.context()
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=CONNECT_TIMEOUT)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            connection.close()
            untrusted = type(error).__name__ == "SSLCertVerificationError"
            raise NoAnswer(describe(error), sent=False, hopeless=untrusted) from error
        keep_alive(connection.sock)
        return connection


class Trust:
    """The certificates that servers are checked against, read when the first one is."""

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self._context: SSLContext | None = None

    def context(self) -> "SSLContext":
        """Return the context for connections with TLS."""
        if self._context is None:
            import ssl

            try:
                self._context = ssl.create_default_context(cafile=self._ca_file)
            except OSError as error:
                message = f"the certificates in {self._ca_file} cannot be used ({error})"
                raise NoAnswer(message, sent=False, hopeless=True) from error
        return self._context


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
            raise NoAnswer(describe(error), sent=True) from error
        finally:
            self._connection.close()


def target_of(url: str, call: Call[Any]) -> str:
    """Return what the first line of a request names."""
    path = f"{urlsplit(url).path}{call.path}"
    return f"{path}?{urlencode(call.query)}" if call.query else path


def headers_of(call: Call[Any], own: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request, with what its body is and how long."""
    headers = {**own, **call.headers}
    if call.file is not None:
        length = call.file.stat().st_size
        return headers | {"Content-Type": FILE_TYPE, "Content-Length": str(length)}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    if call.body is not None or call.method in WITH_BODY:
        headers["Content-Length"] = str(len(call.body or b""))
    return headers


def keep_alive(sock: socket.socket) -> None:
    """Let the kernel notice when the other side is gone: a stream may be silent for hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


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
    # Cut off, it may have been told why the other side wants no more of it.
    with path.open("rb") as file, suppress(BrokenPipeError, ConnectionResetError):
        connection.request(method, target, body=file, headers=headers)


def _read(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Answer:
    try:
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise NoAnswer(describe(error), sent=True) from error
    except BaseException:
        connection.close()
        raise
    return Answer(response.status, body, response.getheader("Retry-After"))


def describe(error: Exception) -> str:
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
