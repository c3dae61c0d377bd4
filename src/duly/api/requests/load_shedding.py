"""Lets in only what there is room for, before anything of it is read.

A server whose database is slow gathers requests until its memory is full, unless
it says no while it still can. Tenants share what there is: one may hold no more than is still
free, so that none keeps the others out. What waits on purpose (for a task to end, for a log to
grow, for a reader to take what is large) has a room of its own, so that it never keeps
out what could be answered at once; and nodes have one, so that clients never keep them out.
"""

from collections.abc import Collection
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from duly import telemetry
from duly.api.auth import ON_IDENTIFIED
from duly.api.body import CLAIM, announced_bytes
from duly.api.responses import as_json
from duly.api.shapes import ErrorAnswer, ErrorValue
from duly.config import RequestSettings
from duly.errors import Unavailable
from duly.http.gate import Gate
from duly.http.limits import max_connections
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
STRANGERS = -1
"""Stands for the tenant of all whose key was not checked yet."""
ANONYMOUS = -2
"""Stands for the tenant of all who have no key, or ask for what needs none."""
MAX_KNOWN_CALLERS = 10_000


class Rooms:
    """What may be inside of one kind: so many requests, with so many bytes of bodies."""

    def __init__(
        self, name: str, requests: Room | SharedRoom, bodies: Room | SharedRoom | None
    ) -> None:
        self.requests = requests
        self.bodies = bodies
        """None where bodies are passed on as they come, and held by nobody."""
        self._shed = telemetry.REQUESTS_SHED.labels(name)

    def refusal(self, tenant_id: int, announced: int) -> str | None:
        """Say why a request cannot come in, if so; one that is too large is not ours to refuse."""
        bodies = self.bodies
        if not self.requests.fits(tenant_id):
            why = FULL
        elif (
            bodies is not None
            and 0 < announced <= bodies.max_share
            and not bodies.fits(tenant_id, announced)
        ):
            why = NO_MEMORY
        else:
            return None
        self._shed.inc()
        return why


class Callers:
    """The tenants of callers, by a hash of how they authenticate: never by a key itself.

    What it remembers decides whose share a request counts against and nothing else, so it need
    not forget a key that was revoked.
    """

    def __init__(self) -> None:
        self._tenants: dict[int, int] = {}

    def tenant_of(self, authorization: bytes | None) -> int:
        """Return the tenant of a caller, or what stands for it."""
        if authorization is None:
            return ANONYMOUS
        return self._tenants.get(hash(authorization), STRANGERS)

    def remember(self, authorization: bytes, tenant_id: int) -> None:
        """Know the caller from now on; the one known for longest is forgotten for it."""
        if len(self._tenants) >= MAX_KNOWN_CALLERS:
            self._tenants.pop(next(iter(self._tenants)))
        self._tenants[hash(authorization)] = tenant_id


class Door:
    """The application, behind its bounds."""

    def __init__(
        self,
        app: ASGIApp,
        settings: RequestSettings,
        headers: Any = (),
        gate: Gate | None = None,
    ) -> None:
        self._app = app
        self.gate = gate
        """What a connection asks before anything comes to this door."""
        self._headers = list(headers)
        self._connections: Collection[Any] = ()
        self._counted = -1
        self._crowd = 0
        self._callers = Callers()
        bodies = SharedRoom(settings.bodies_limit, NO_MEMORY)
        self._open = Rooms("open", SharedRoom(settings.open_limit, FULL), bodies)
        # Whoever waits takes a share of its tenant, too (`Parts.waits`).
        self._waiting = Rooms("waiting", Room(settings.waiting_limit, FULL), bodies)
        self._memory = SharedRoom(settings.memory_limit, NO_MEMORY)
        self._nodes = Rooms("nodes", Room(NODES, FULL), Room(settings.bodies_limit, NO_MEMORY))
        self._uploads = Rooms("uploads", SharedRoom(UPLOADS, FULL), None)
        self._downloads = Rooms("downloads", SharedRoom(DOWNLOADS, FULL), bodies)

    def watch(self, connections: Collection[Any]) -> None:
        """Refuse clients before `connections` are so many that nodes would not get any."""
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["path"] == UNTOUCHED:
            await self._app(scope, receive, send)
            return
        rooms = self._rooms_of(scope)
        authorization, announced = _authorization(scope), announced_bytes(scope) or 0
        tenant_id = self._callers.tenant_of(authorization)
        is_crowded = rooms is not self._nodes and self._is_crowded()
        why = FULL if is_crowded else rooms.refusal(tenant_id, announced)
        if why is not None:
            await self._refuse(why, hang_up=is_crowded)(scope, receive, send)
            return
        visit = Visit(rooms, self._memory, tenant_id, receive)
        scope[CLAIM] = visit.claim
        is_stranger = tenant_id == STRANGERS and rooms is not self._nodes
        if is_stranger and authorization is not None:
            identify = partial(self._identify, visit, authorization)
            scope[ON_IDENTIFIED] = identify
        try:
            await self._app(scope, receive if rooms.bodies is None else visit.receive, send)
        finally:
            visit.end()

    def _identify(self, visit: "Visit", authorization: bytes, tenant_id: int | None) -> None:
        if tenant_id is not None:
            self._callers.remember(authorization, tenant_id)
        visit.move_to(ANONYMOUS if tenant_id is None else tenant_id)

    def _rooms_of(self, scope: Any) -> Rooms:
        path, query = scope["path"], scope["query_string"]
        is_join = path == "/v1/nodes" and scope["method"] == "POST"
        if is_join or path.startswith(("/v1/gateway/", "/v1/attempt/")):
            return self._nodes
        if scope["method"] == "PUT" and path.startswith("/v1/artifacts/"):
            return self._uploads
        if scope["method"] != "GET":
            return self._open
        # However else these words can be spelled: it is then counted with the others.
        if b"wait=" in query or b"follow=" in query:
            return self._waiting
        is_long = path.startswith("/v1/artifacts/") or path.endswith("/logs")
        return self._downloads if is_long else self._open

    def _is_crowded(self) -> bool:
        if len(self._connections) != self._counted:
            # As many as there were, they are as few as they were: the limit is not asked for again.
            self._counted = len(self._connections)
            self._crowd = max_connections() * 9 // 10
        return self._counted > self._crowd

    def _refuse(self, why: str, *, hang_up: bool) -> Response:
        value = ErrorValue(Unavailable.code, why, {"retry_after": float(RETRY_AFTER)})
        response = as_json(ErrorAnswer(value), 503)
        response.raw_headers += [(b"retry-after", str(RETRY_AFTER).encode()), *self._headers]
        if hang_up:
            response.raw_headers.append((b"connection", b"close"))
        return response


class Visit:
    """A request while it is worked on: its place, its body as it comes in, its memory.

    What was announced of a body is not counted: it may never come.
    """

    def __init__(self, rooms: Rooms, memory: SharedRoom, tenant_id: int, receive: Receive) -> None:
        self._rooms = rooms
        self._tenant_id = tenant_id
        self._receive = receive
        self._held = 0
        self._memory = memory
        self._claimed: list[tuple[int, int]] = []
        self._has_place = True
        rooms.requests.take(tenant_id)

    async def receive(self) -> Any:
        """Return the next message; raises Unavailable when there is no room for it."""
        message = await self._receive()
        size = len(message.get("body", b""))
        bodies = self._rooms.bodies
        if size and bodies is not None:
            bodies.take(self._tenant_id, size)
            self._held += size
        return message

    def move_to(self, tenant_id: int) -> None:
        """Count against the share of another tenant, before any of the body was received.

        Raises Unavailable when that tenant has its share already.
        """
        requests = self._rooms.requests
        requests.give_back(self._tenant_id)
        self._has_place = False
        why = self._rooms.refusal(tenant_id, 0)
        if why is not None:
            raise Unavailable(why)
        requests.take(tenant_id)
        self._has_place = True
        self._tenant_id = tenant_id

    def claim(self, tenant_id: int, amount: int) -> None:
        """Hold memory for what the body is decoded to; raises Unavailable if there is none."""
        self._memory.take(tenant_id, amount)
        self._claimed.append((tenant_id, amount))

    def end(self) -> None:
        """Give back the place, the room of all that came, and of what was made of it."""
        if self._has_place:
            self._rooms.requests.give_back(self._tenant_id)
        if self._held and self._rooms.bodies is not None:
            self._rooms.bodies.give_back(self._tenant_id, self._held)
        for tenant_id, amount in self._claimed:
            self._memory.give_back(tenant_id, amount)


def _authorization(scope: Scope) -> bytes | None:
    """Return how the caller authenticates, if it does; of several headers the last."""
    authorization = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            authorization = value
    return authorization
