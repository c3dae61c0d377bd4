"""What is handed out as fast as its reader takes it, which may be never.

A tenant has few of them at once, so that its slow readers keep out no other tenant's. They are
counted while they are sent, and not before: an answer that is never begun would stay counted.
"""

from collections.abc import AsyncIterator, Mapping

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from duly.api.auth import guard
from duly.api.routes import credential_of, parts_of
from duly.server.room import SharedRoom, TenantRooms


class Download:
    """Bytes as they come, to be sent as an answer."""

    def __init__(
        self,
        request: Request,
        data: AsyncIterator[bytes],
        media_type: str,
        headers: Mapping[str, str] | None = None,
        *,
        room: TenantRooms | SharedRoom | None = None,
    ) -> None:
        self._room = room or parts_of(request).downloads
        self._tenant_id = credential_of(request).tenant_id
        self._response = StreamingResponse(
            guarded(request, data), headers=headers, media_type=media_type
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; raises Unavailable, with nothing sent, when there is no room."""
        with self._room.inside(self._tenant_id):
            await self._response(scope, receive, send)


async def guarded(request: Request, data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what comes, part by part, for as long as the caller may have it."""
    async for part in data:
        await guard(request)
        yield part
