"""Streams artifacts and logs, with a limit on concurrent downloads per tenant.

A download lasts as long as its reader likes. The limit keeps one tenant's slow readers from
blocking the downloads of others. A download counts only while it is being sent: a response that
is never started would count forever.
"""

from collections.abc import AsyncIterator, Mapping

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from duly.api.auth import guard
from duly.api.requests.disconnects import break_off
from duly.api.routes import components_of, credential_of
from duly.errors import Unavailable
from duly.server.capacity_limiter import FairCapacityLimiter, TenantCapacityLimiters


class Download:
    """A streaming response that holds a place in a capacity limiter while it is sent."""

    def __init__(
        self,
        request: Request,
        data: AsyncIterator[bytes],
        media_type: str,
        headers: Mapping[str, str] | None = None,
        *,
        limiter: TenantCapacityLimiters | FairCapacityLimiter | None = None,
    ) -> None:
        self._limiter = limiter or components_of(request).downloads
        self._tenant_id = credential_of(request).tenant_id
        self._response = StreamingResponse(
            with_key_checks(request, data), headers=headers, media_type=media_type
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; raises Unavailable, with nothing sent, if the limit is reached."""
        with self._limiter.acquired(self._tenant_id):
            await self._response(scope, receive, send)


async def with_key_checks(request: Request, data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of `data` for as long as the caller's key remains valid.

    If the rest is unavailable, the connection is closed, as the status has been sent.
    """
    try:
        async for chunk in data:
            await guard(request)
            yield chunk
    except Unavailable:
        break_off(request)
