"""The async transport: one aiohttp session, opened with the first call."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from duly.client.call import FILE_TYPE, Answer, Call, read_error
from duly.client.endpoint import Endpoint
from duly.client.retry import CUT, NoAnswer

CONNECT_TIMEOUT = 5.0


class Session:
    """Connections of one event loop to the servers."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None

    async def exchange(self, url: str, call: Call[Any]) -> Answer:
        """Send `call` to the server at `url` and read the whole answer."""
        try:
            async with self._request(url, call) as response:
                return await _answer(response)
        except (aiohttp.ClientError, OSError) as error:
            raise _no_answer(error) from error

    async def stream(self, url: str, call: Call[bytes], skip: int) -> AsyncIterator[bytes]:
        """Yield the answer's bytes as they come, from the one after `skip` on."""
        try:
            async with self._request(url, call) as response:
                if response.status != 200:
                    raise read_error(await _answer(response))
                async for chunk in response.content.iter_any():
                    if skip < len(chunk):
                        yield chunk[skip:]
                    skip = max(skip - len(chunk), 0)
        except (aiohttp.ClientError, OSError) as error:
            raise _no_answer(error) from error

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _request(self, url: str, call: Call[Any]) -> Any:
        session = self._open()
        headers = dict(call.headers)
        data: Any = call.body
        if call.file is not None:
            headers["Content-Type"] = FILE_TYPE
            data = call.file.open("rb")  # closed by the request
        elif call.body is not None:
            headers["Content-Type"] = "application/json"
        return session.request(
            call.method,
            f"{url}{call.path}",
            params=list(call.query),
            data=data,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_TIMEOUT, sock_read=call.timeout
            ),
        )

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                headers=self._endpoint.headers,
                connector=aiohttp.TCPConnector(ssl=self._trust(), limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _trust(self) -> ssl.SSLContext | bool:
        if self._endpoint.ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=self._endpoint.ca_file)
        except OSError as error:
            message = f"the certificates in {self._endpoint.ca_file} cannot be used ({error})"
            raise NoAnswer(message, sent=False, hopeless=True) from error


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    return Answer(response.status, await response.read(), response.headers.get("Retry-After"))


def _no_answer(error: Exception) -> NoAnswer:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "")
            message = (
                f"its certificate is not trusted, {why} (DULY_CA_FILE: the authority to trust)"
            )
            return NoAnswer(message, sent=False, hopeless=True)
        case aiohttp.ClientConnectorSSLError():
            message = "it does not speak TLS; perhaps its URL begins with http://"
            return NoAnswer(message, sent=False)
        case aiohttp.ClientConnectorDNSError():
            return NoAnswer("its name is not known", sent=False)
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return NoAnswer("the connection was refused", sent=False)
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return NoAnswer("no connection could be made", sent=False)
        case asyncio.TimeoutError():
            return NoAnswer("there was no answer in time", sent=True)
        case _:
            return NoAnswer(CUT, sent=True)
