"""How an agent speaks to the servers: POST, one answer, errors as exceptions.

There may be several servers, all alike. The one that answered last is asked first;
when it cannot be reached, or is silent, the next one is asked in the next try, and
nothing waits for it any longer.
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

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 3.0
JSON = "application/json"
REFUSALS: dict[int, type[DulyError]] = {
    400: Malformed,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
}


class Backoff:
    """How long to wait before the next try: longer each time, and never all agents at once."""

    def __init__(self, longest: float = LONGEST_PAUSE) -> None:
        self._pause = FIRST_PAUSE
        self._longest = longest

    def next(self) -> float:
        """Return the seconds to wait now."""
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311
        self._pause = min(2 * self._pause, self._longest)
        return pause

    def reset(self) -> None:
        """Begin again with a short pause."""
        self._pause = FIRST_PAUSE


class Gateway:
    """The servers, seen from an agent.

    Each purpose has connections of its own, so that a poll that waits or a log that is long
    never holds up a heartbeat.
    """

    def __init__(self, urls: list[str], trust: ssl.SSLContext | None = None) -> None:
        self.key = ""
        """The bearer: a join token at first, then the key of the node."""
        self._urls = [url.rstrip("/") for url in urls]
        self._trust: ssl.SSLContext | bool = True if trust is None else trust
        self._current = 0
        self._waiting: dict[int, set[asyncio.Timeout]] = defaultdict(set)
        """The calls that are under way, by the server that they wait for."""
        self._unanswered: Counter[str] = Counter()
        """How often each purpose was last left without an answer, one time after the other."""
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

    async def join(self, message: wire.Join, *, timeout: float) -> wire.Joined:
        """Ask to be a node; the answer is JSON, as all of /v1/nodes."""
        answer = await self._ask("POST", "/v1/nodes", msgspec.json.encode(message), JSON, timeout)
        try:
            return msgspec.json.decode(answer, type=wire.Joined)
        except msgspec.DecodeError as error:
            raise Unavailable(f"The server's answer makes no sense: {error}") from error

    async def call(
        self, name: str, message: Any, kind: type[T], *, timeout: float, soon: float | None = None
    ) -> T:
        """Send `message` to the gateway's `name`, and return the answer.

        One that should come `soon` is waited for no longer than that while there is a server
        that has not been asked: this one may be stopped. When all are silent, all are slow.
        """
        if soon is not None and self._unanswered[name] < len(self._urls) - 1:
            timeout = min(soon, timeout)
        self._unanswered[name] += 1
        answer = await self.send(name, message, timeout=timeout)
        self._unanswered[name] = 0
        try:
            return wire.decode(answer, kind)
        except Malformed as error:
            raise Unavailable(f"The server's answer makes no sense: {error.message}") from error

    async def send(self, name: str, message: Any, *, timeout: float) -> bytes:
        """Send `message` to the gateway's `name`; what comes back does not matter."""
        path, body = f"/v1/gateway/{name}", wire.encode(message)
        return await self._ask("POST", path, body, wire.MEDIA_TYPE, timeout)

    async def put(self, path: str, body: bytes, *, key: str, timeout: float) -> bytes:
        """Send JSON to `path` under another key than that of the node."""
        return await self._ask("PUT", path, body, JSON, timeout, key)

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes,
        media_type: str,
        timeout: float,
        key: str | None = None,
    ) -> bytes:
        current = self._current
        headers = {"Authorization": f"Bearer {key or self.key}", "Content-Type": media_type}
        url = self._urls[current] + path
        try:
            async with (
                asyncio.timeout(timeout) as limit,
                self._under_way(current, limit),
                self._session(path).request(
                    method, url, data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                answer = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._give_up(current)
            server = self._urls[current]
            raise Unavailable(f"{server} cannot be reached: {_why(error, server)}.") from error
        if 200 <= status < 300:
            return answer
        if status >= 500:
            self._move_on(current)
        raise _refusal(status, answer)

    @asynccontextmanager
    async def _under_way(self, server: int, limit: asyncio.Timeout) -> AsyncIterator[None]:
        self._waiting[server].add(limit)
        try:
            yield
        finally:
            self._waiting[server].discard(limit)

    def _give_up(self, server: int) -> None:
        """Let nothing wait any longer for a server that is silent.

        A heartbeat notices first. A poll would go on waiting for a stopped server, while
        another one has tasks for us.
        """
        now = asyncio.get_running_loop().time()
        for limit in self._waiting[server]:
            if not limit.expired():
                limit.reschedule(now)
        self._move_on(server)

    def _session(self, path: str) -> aiohttp.ClientSession:
        session = self._sessions.get(path)
        if session is None:
            session = self._sessions[path] = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=1, force_close=False, ssl=self._trust),
                auto_decompress=False,
            )
        return session

    def _move_on(self, tried: int) -> None:
        # Several calls may fail together; only the first of them moves on.
        if self._current == tried:
            self._current = (tried + 1) % len(self._urls)


def _why(error: Exception, url: str) -> str:
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


class _Refusal(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Refused(msgspec.Struct):
    error: _Refusal


def _refusal(status: int, answer: bytes) -> DulyError:
    try:
        told = msgspec.json.decode(answer, type=_Refused).error
    except msgspec.DecodeError:
        told = _Refusal(message=f"The server answered {status}.")
    if status >= 500 or status == 429:
        return Unavailable(told.message)
    if told.code == Fenced.code:
        return Fenced(told.message)
    if status == 422:
        return Invalid("", told.message)
    return REFUSALS.get(status, Conflict)(told.message)
