"""The agent's HTTP client for the servers, with failover; errors become exceptions.

All servers are equal, and the agent stays with the one that answered last. When that
server is unreachable or silent, all calls that wait for it are abandoned, and the next
try goes to the next server.
"""

import asyncio
import random
import ssl
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
import msgspec

from duly import wire
from duly.errors import (
    Conflict,
    DulyError,
    Fenced,
    Forbidden,
    Invalid,
    Malformed,
    NotFound,
    TooLarge,
    Unauthenticated,
    Unavailable,
)

T = TypeVar("T")

MIN_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 3.0
JSON_MEDIA_TYPE = "application/json"
ERRORS_BY_STATUS: dict[int, type[DulyError]] = {
    400: Malformed,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
}


class Backoff:
    """Exponential backoff with jitter, so that not all agents retry at once."""

    def __init__(self, max_pause: float = MAX_BACKOFF_SECONDS) -> None:
        self._pause = MIN_BACKOFF_SECONDS
        self._max_pause = max_pause

    def next(self) -> float:
        """Return the seconds to wait before the next try."""
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311
        self._pause = min(2 * self._pause, self._max_pause)
        return pause

    def reset(self) -> None:
        """Start again with the shortest pause."""
        self._pause = MIN_BACKOFF_SECONDS


class Gateway:
    """The servers' gateway API.

    Each route has a connection of its own, so that neither a long poll nor a large log chunk
    delays a heartbeat.
    """

    def __init__(self, urls: list[str], trust: ssl.SSLContext | None = None) -> None:
        self.key = ""
        """The bearer token: a join token at first, then the node's key."""
        self._urls = [url.rstrip("/") for url in urls]
        self._trust: ssl.SSLContext | bool = True if trust is None else trust
        self._current = 0
        self._timeouts: dict[int, set[asyncio.Timeout]] = defaultdict(set)
        """The timeouts of the calls in flight, by server."""
        self._unanswered: Counter[str] = Counter()
        """Consecutive calls without a response, by route."""
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> "Gateway":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for session in self._sessions.values():
            await session.close()

    async def join(self, message: wire.JoinRequest, *, timeout: float) -> wire.JoinResponse:
        """Join as a node; the request and the response are JSON, like all of /v1/nodes."""
        content = await self._request(
            "POST", "/v1/nodes", msgspec.json.encode(message), JSON_MEDIA_TYPE, timeout
        )
        try:
            return msgspec.json.decode(content, type=wire.JoinResponse)
        except msgspec.DecodeError as error:
            raise Unavailable(
                f"The server sent a response that cannot be decoded: {error}"
            ) from error

    async def call(
        self,
        name: str,
        message: Any,
        response_type: type[T],
        *,
        timeout: float,
        failover_timeout: float | None = None,
    ) -> T:
        """Send `message` to the gateway's `name`, and return the decoded response.

        With `failover_timeout`, a server that is silent for that long is given up for the next
        one. Once every server was silent, all of them are slow, and `timeout` applies.
        """
        if failover_timeout is not None and self._unanswered[name] < len(self._urls) - 1:
            timeout = min(failover_timeout, timeout)
        self._unanswered[name] += 1
        content = await self.send(name, message, timeout=timeout)
        self._unanswered[name] = 0
        try:
            return wire.decode(content, response_type)
        except Malformed as error:
            raise Unavailable(
                f"The server sent a response that cannot be decoded: {error.message}"
            ) from error

    async def send(self, name: str, message: Any, *, timeout: float) -> bytes:
        """Send `message` to the gateway's `name`, and return the raw response."""
        path, body = f"/v1/gateway/{name}", wire.encode(message)
        return await self._request("POST", path, body, wire.MEDIA_TYPE, timeout)

    async def put(self, path: str, body: bytes, *, key: str, timeout: float) -> bytes:
        """Send JSON to `path`, authenticated with `key` instead of the node's key."""
        return await self._request("PUT", path, body, JSON_MEDIA_TYPE, timeout, key)

    async def request(
        self, method: str, path: str, body: bytes, *, key: str, timeout: float, route: str
    ) -> bytes:
        """Send JSON to `path`, which is one of many of a `route`, authenticated with `key`."""
        return await self._request(method, path, body, JSON_MEDIA_TYPE, timeout, key, route)

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes,
        media_type: str,
        timeout: float,
        key: str | None = None,
        route: str | None = None,
    ) -> bytes:
        current = self._current
        headers = {"Authorization": f"Bearer {key or self.key}", "Content-Type": media_type}
        url = self._urls[current] + path
        try:
            async with (
                asyncio.timeout(timeout) as limit,
                self._tracked(current, limit),
                self._session(route or path).request(
                    method, url, data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                content = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._abandon_server(current)
            server = self._urls[current]
            raise Unavailable(
                f"{server} cannot be reached: {_describe_failure(error, server)}."
            ) from error
        if 200 <= status < 300:
            return content
        if status >= 500:
            self._fail_over(current)
        raise _error_of(status, content)

    @asynccontextmanager
    async def _tracked(self, server: int, limit: asyncio.Timeout) -> AsyncIterator[None]:
        self._timeouts[server].add(limit)
        try:
            yield
        finally:
            self._timeouts[server].discard(limit)

    def _abandon_server(self, server: int) -> None:
        """Abort every call that waits for an unresponsive server, and fail over.

        The heartbeat notices first. A poll would go on waiting for a stopped server while
        another one has tasks for this node.
        """
        now = asyncio.get_running_loop().time()
        for limit in self._timeouts[server]:
            if not limit.expired():
                limit.reschedule(now)
        self._fail_over(server)

    def _session(self, path: str) -> aiohttp.ClientSession:
        session = self._sessions.get(path)
        if session is None:
            session = self._sessions[path] = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=1, force_close=False, ssl=self._trust),
                auto_decompress=False,
            )
        return session

    def _fail_over(self, tried: int) -> None:
        # Several calls may fail together; only the first of them fails over.
        if self._current == tried:
            self._current = (tried + 1) % len(self._urls)


def _describe_failure(error: Exception, url: str) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError(
            certificate_error=ssl.SSLCertVerificationError() as bad
        ):
            return f"its certificate is not trusted, {bad.verify_message} (see --ca-file)"
        case aiohttp.ClientConnectorSSLError():
            return "it does not speak TLS; perhaps its URL begins with http://"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientResponseError():
            hint = "; perhaps its URL begins with https://" if url.startswith("http://") else ""
            return f"it cut us off, or does not speak HTTP{hint}"
        case TimeoutError():
            return "there was no answer in time"
        case aiohttp.ClientConnectorError(os_error=OSError(strerror=str(text))):
            return text
        case _:
            return repr(error)


class _ErrorBody(msgspec.Struct):
    code: str = ""
    message: str = ""


class _ErrorResponse(msgspec.Struct):
    error: _ErrorBody


def _error_of(status: int, content: bytes) -> DulyError:
    try:
        body = msgspec.json.decode(content, type=_ErrorResponse).error
    except msgspec.DecodeError:
        body = _ErrorBody(message=f"The server answered {status}.")
    if status >= 500 or status == 429:
        return Unavailable(body.message)
    if body.code == Fenced.code:
        return Fenced(body.message)
    if status == 422:
        return Invalid("", body.message)
    return ERRORS_BY_STATUS.get(status, Conflict)(body.message)
