"""Lets in only what there is room for, before anything of it is read.

A server whose database is slow gathers requests until its memory is full, unless
it says no while it still can. What waits on purpose (for a task to end, for a log to
grow, for a reader to take what is large) has a room of its own, so that it never keeps
out what could be answered at once; and nodes have one, so that clients never keep them out.
"""

from collections.abc import Collection
from typing import Any

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from duly import telemetry
from duly.api.answer import ENCODER, Answer
from duly.api.body import CLAIM
from duly.api.shapes import ErrorAnswer, ErrorValue
from duly.api.turnstile import Turnstile
from duly.config import RequestSettings
from duly.errors import Unavailable
from duly.http_limits import most_connections
from duly.server.room import Room, SharedRoom

NODES = 20_000
"""Requests of nodes at once: a poll that waits, a heartbeat, a report, a log each."""
UPLOADS = 32
"""Artifacts that are uploaded at once. Each is held a part at a time, and keeps out nothing but
other uploads, however large and slow it is."""
DOWNLOADS = 256
"""Artifacts and logs that are handed out at once: they take as long as their readers please."""
RETRY_AFTER = 2
FULL = "The server has as many requests as it can hold; try again."
NO_MEMORY = "The server holds as much of other requests as it can; try again."
UNTOUCHED = "/healthz"
"""Says that the server is there, which it is."""


class Rooms:
    """What may be inside of one kind: so many requests, with so many bytes of bodies."""

    def __init__(self, name: str, requests: Room, bodies: Room) -> None:
        self.requests = requests
        self.bodies = bodies
        self._shed = telemetry.REQUESTS_SHED.labels(name)

    def refusal(self, announced: int) -> str | None:
        """Say why a request cannot come in, if so; one that is too large is not ours to refuse."""
        if not self.requests.fits():
            why = FULL
        elif announced <= self.bodies.most and not self.bodies.fits(announced):
            why = NO_MEMORY
        else:
            return None
        self._shed.inc()
        return why


class Door:
    """The application, behind its bounds."""

    def __init__(
        self,
        app: ASGIApp,
        settings: RequestSettings,
        headers: Any = (),
        turnstile: Turnstile | None = None,
    ) -> None:
        self._app = app
        self.turnstile = turnstile
        """Who is refused before it comes to this door; its connection asks for that."""
        self._headers = list(headers)
        self._connections: Collection[Any] = ()
        self._counted = -1
        self._crowd = 0
        bodies = Room(settings.bodies_limit)
        self._open = Rooms("open", Room(settings.open_limit), bodies)
        self._waiting = Rooms("waiting", Room(settings.waiting_limit), bodies)
        self._memory = SharedRoom(settings.memory_limit, NO_MEMORY)
        self._nodes = Rooms("nodes", Room(NODES), Room(settings.bodies_limit))
        self._uploads = Rooms("uploads", Room(UPLOADS), Room(0))
        self._downloads = Rooms("downloads", Room(DOWNLOADS), bodies)

    def watch(self, connections: Collection[Any]) -> None:
        """Refuse clients before `connections` are so many that nodes would not get any."""
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != ScopeType.HTTP or scope["path"] == UNTOUCHED:
            await self._app(scope, receive, send)
            return
        rooms = self._rooms_of(scope)
        is_crowded = rooms is not self._nodes and self._is_crowded()
        why = FULL if is_crowded else rooms.refusal(_announced(scope))
        if why is not None:
            await self._refuse(why, hang_up=is_crowded)(scope, receive, send)
            return
        body = Body(receive, rooms.bodies, self._memory)
        scope[CLAIM] = body.claim  # type: ignore[literal-required]
        rooms.requests.take()
        try:
            await self._app(scope, receive if rooms is self._uploads else body.receive, send)
        finally:
            rooms.requests.give_back()
            body.forget()

    def _rooms_of(self, scope: Any) -> Rooms:
        path, query = scope["path"], scope["query_string"]
        is_join = path == "/v1/nodes" and scope["method"] == "POST"
        if is_join or path.startswith(("/v1/gateway/", "/v1/attempt/")):
            return self._nodes
        if scope["method"] == "PUT" and path.startswith("/v1/artifacts/"):
            return self._uploads
        # However else these words can be spelled: it is then counted with the others.
        if b"wait=" in query or b"follow=" in query:
            return self._waiting
        is_long = path.startswith("/v1/artifacts/") or path.endswith("/logs")
        return self._downloads if is_long and scope["method"] == "GET" else self._open

    def _is_crowded(self) -> bool:
        if len(self._connections) != self._counted:
            # As many as there were, they are as few as they were: the limit is not asked for again.
            self._counted = len(self._connections)
            self._crowd = most_connections() * 9 // 10
        return self._counted > self._crowd

    def _refuse(self, why: str, *, hang_up: bool) -> Answer:
        value = ErrorValue(Unavailable.code, why, {"retry_after": float(RETRY_AFTER)})
        answer = Answer(ENCODER.encode(ErrorAnswer(value)), 503)
        answer.headers += [(b"retry-after", str(RETRY_AFTER).encode()), *self._headers]
        if hang_up:
            answer.headers.append((b"connection", b"close"))
        return answer


class Body:
    """The body of a request as it comes in, counted for as long as the request is worked on.

    What was announced is not counted: it may never come.
    """

    def __init__(self, receive: Receive, room: Room, memory: SharedRoom) -> None:
        self._receive = receive
        self._room = room
        self._held = 0
        self._memory = memory
        self._claimed: list[tuple[int, int]] = []

    async def receive(self) -> Any:
        """Return the next message; raises Unavailable when there is no room for it."""
        message = await self._receive()
        size = len(message.get("body", b""))  # type: ignore[arg-type]
        if size:
            if not self._room.fits(size):
                raise Unavailable(NO_MEMORY)
            self._room.take(size)
            self._held += size
        return message

    def claim(self, tenant_id: int, amount: int) -> None:
        """Hold memory for what the body is decoded to; raises Unavailable if there is none."""
        self._memory.take(tenant_id, amount)
        self._claimed.append((tenant_id, amount))

    def forget(self) -> None:
        """Give back the room of all that came, and of what was made of it."""
        self._room.give_back(self._held)
        for tenant_id, amount in self._claimed:
            self._memory.give_back(tenant_id, amount)


def _announced(scope: Any) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:12])
    return 0
