"""Load shedding: refuses requests that exceed the server's capacity before reading them.

A server with a slow database accumulates requests until its memory is full unless it sheds load.
Tenants share the capacity: one may hold no more than is still free, so none starves the others.
Requests that wait on purpose (for a task to end, for a log to grow, for the reader of a large
download) have a bulkhead of their own, so they never block requests that can be served at once.
Nodes have one too, so clients never block them.
"""

from collections.abc import Collection
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from duly import telemetry
from duly.api.auth import ON_IDENTIFIED
from duly.api.requests.body import CLAIM_MEMORY, content_length
from duly.api.responses import as_json
from duly.api.tasks.task_shapes import ErrorObject, ErrorResponse
from duly.config import RequestSettings
from duly.errors import Unavailable
from duly.http.connection_limits import max_connections
from duly.http.early_refusal import RefusalGate
from duly.server.capacity_limiter import CapacityLimiter, FairCapacityLimiter

MAX_NODE_REQUESTS = 20_000
"""A long poll, a heartbeat, a report and a log chunk for each of 5,000 nodes."""
MAX_CONCURRENT_UPLOADS = 32
"""An upload is streamed, so a large or slow one only takes capacity from other uploads."""
MAX_CONCURRENT_DOWNLOADS = 256
"""Artifacts and logs; a download takes as long as its reader likes."""
RETRY_AFTER_SECONDS = 2
TOO_MANY_REQUESTS = "The server has as many requests as it can handle. Try again."
OUT_OF_MEMORY = "The server has no memory left for more requests. Try again."
HEALTH_PATH = "/healthz"
"""Never shed: an overloaded server is still alive."""
UNIDENTIFIED_TENANT = -1
"""The tenant id of all callers whose key was not checked yet."""
ANONYMOUS_TENANT = -2
"""The tenant id of all callers without a key, or on routes that need none."""
MAX_CACHED_CALLERS = 10_000


class Bulkhead:
    """The capacity for one class of requests: a number of requests and of body bytes."""

    def __init__(
        self,
        name: str,
        requests: CapacityLimiter | FairCapacityLimiter,
        bodies: CapacityLimiter | FairCapacityLimiter | None,
    ) -> None:
        self.requests = requests
        self.bodies = bodies
        """None where bodies are streamed and take no memory."""
        self._shed = telemetry.REQUESTS_SHED.labels(name)

    def refusal(self, tenant_id: int, length: int) -> str | None:
        """Return the reason to refuse a request with a body of `length` bytes, or None.

        A body above the limit of any request is not refused here, but with 413 when it is read.
        """
        bodies = self.bodies
        if not self.requests.can_acquire(tenant_id):
            reason = TOO_MANY_REQUESTS
        elif (
            bodies is not None
            and 0 < length <= bodies.max_share
            and not bodies.can_acquire(tenant_id, length)
        ):
            reason = OUT_OF_MEMORY
        else:
            return None
        self._shed.inc()
        return reason


class CallerCache:
    """Caches the tenant of each Authorization header, by the header's hash and never by its key.

    An entry only decides which tenant's share a request counts against, so a revoked key need not
    be invalidated.
    """

    def __init__(self) -> None:
        self._tenants: dict[int, int] = {}

    def get(self, authorization: bytes | None) -> int:
        """Return the tenant of a caller, or the id that stands for unidentified callers."""
        if authorization is None:
            return ANONYMOUS_TENANT
        return self._tenants.get(hash(authorization), UNIDENTIFIED_TENANT)

    def put(self, authorization: bytes, tenant_id: int) -> None:
        """Cache the tenant of a caller, evicting the oldest entry if the cache is full."""
        if len(self._tenants) >= MAX_CACHED_CALLERS:
            self._tenants.pop(next(iter(self._tenants)))
        self._tenants[hash(authorization)] = tenant_id


class LoadShedder:
    """ASGI middleware that admits a request to the application or refuses it with 503."""

    def __init__(
        self,
        app: ASGIApp,
        settings: RequestSettings,
        headers: Any = (),
        gate: RefusalGate | None = None,
    ) -> None:
        self._app = app
        self.gate = gate
        """Consulted by connections before a request gets here."""
        self._headers = list(headers)
        self._connections: Collection[Any] = ()
        self._connection_count = -1
        self._max_client_connections = 0
        self._callers = CallerCache()
        bodies = FairCapacityLimiter(settings.bodies_limit, OUT_OF_MEMORY)
        self._open = Bulkhead(
            "open", FairCapacityLimiter(settings.open_limit, TOO_MANY_REQUESTS), bodies
        )
        # A waiting request also takes from its tenant's share (`Components.waits`).
        self._waiting = Bulkhead(
            "waiting", CapacityLimiter(settings.waiting_limit, TOO_MANY_REQUESTS), bodies
        )
        self._memory = FairCapacityLimiter(settings.memory_limit, OUT_OF_MEMORY)
        self._nodes = Bulkhead(
            "nodes",
            CapacityLimiter(MAX_NODE_REQUESTS, TOO_MANY_REQUESTS),
            CapacityLimiter(settings.bodies_limit, OUT_OF_MEMORY),
        )
        self._uploads = Bulkhead(
            "uploads", FairCapacityLimiter(MAX_CONCURRENT_UPLOADS, TOO_MANY_REQUESTS), None
        )
        self._downloads = Bulkhead(
            "downloads", FairCapacityLimiter(MAX_CONCURRENT_DOWNLOADS, TOO_MANY_REQUESTS), bodies
        )

    def watch(self, connections: Collection[Any]) -> None:
        """Refuse clients while `connections` are so many that nodes might not get any."""
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request to the application, or refuse it."""
        if scope["path"] == HEALTH_PATH:
            await self._app(scope, receive, send)
            return
        bulkhead = self._bulkhead_of(scope)
        authorization, length = _authorization(scope), content_length(scope) or 0
        tenant_id = self._callers.get(authorization)
        is_crowded = bulkhead is not self._nodes and self._has_too_many_connections()
        reason = TOO_MANY_REQUESTS if is_crowded else bulkhead.refusal(tenant_id, length)
        if reason is not None:
            await self._refuse(reason, disconnect=is_crowded)(scope, receive, send)
            return
        admitted = AdmittedRequest(bulkhead, self._memory, tenant_id, receive)
        scope[CLAIM_MEMORY] = admitted.claim_memory
        is_unidentified = tenant_id == UNIDENTIFIED_TENANT and bulkhead is not self._nodes
        if is_unidentified and authorization is not None:
            scope[ON_IDENTIFIED] = partial(self._on_identified, admitted, authorization)
        try:
            await self._app(scope, receive if bulkhead.bodies is None else admitted.receive, send)
        finally:
            admitted.release()

    def _on_identified(
        self, admitted: "AdmittedRequest", authorization: bytes, tenant_id: int | None
    ) -> None:
        if tenant_id is not None:
            self._callers.put(authorization, tenant_id)
        admitted.charge_to(ANONYMOUS_TENANT if tenant_id is None else tenant_id)

    def _bulkhead_of(self, scope: Any) -> Bulkhead:
        path, query = scope["path"], scope["query_string"]
        is_join = path == "/v1/nodes" and scope["method"] == "POST"
        if is_join or path.startswith(("/v1/gateway/", "/v1/attempt/")):
            return self._nodes
        if scope["method"] == "PUT" and path.startswith("/v1/artifacts/"):
            return self._uploads
        if scope["method"] != "GET":
            return self._open
        # A percent-encoded spelling is not recognised and counts as an ordinary request.
        if b"wait=" in query or b"follow=" in query:
            return self._waiting
        is_long = path.startswith("/v1/artifacts/") or path.endswith("/logs")
        return self._downloads if is_long else self._open

    def _has_too_many_connections(self) -> bool:
        if len(self._connections) != self._connection_count:
            # The limit is a system call, so it is only read when the count has changed.
            self._connection_count = len(self._connections)
            self._max_client_connections = max_connections() * 9 // 10
        return self._connection_count > self._max_client_connections

    def _refuse(self, reason: str, *, disconnect: bool) -> Response:
        error = ErrorObject(Unavailable.code, reason, {"retry_after": float(RETRY_AFTER_SECONDS)})
        response = as_json(ErrorResponse(error), 503)
        response.raw_headers += [
            (b"retry-after", str(RETRY_AFTER_SECONDS).encode()),
            *self._headers,
        ]
        if disconnect:
            response.raw_headers.append((b"connection", b"close"))
        return response


class AdmittedRequest:
    """The capacity that a request holds until it ends: a place, body bytes and memory.

    Body bytes count when they arrive, not by the Content-Length: they may never arrive.
    """

    def __init__(
        self, bulkhead: Bulkhead, memory: FairCapacityLimiter, tenant_id: int, receive: Receive
    ) -> None:
        self._bulkhead = bulkhead
        self._tenant_id = tenant_id
        self._receive = receive
        self._body_bytes = 0
        self._memory = memory
        self._memory_claims: list[tuple[int, int]] = []
        self._has_place = True
        bulkhead.requests.acquire(tenant_id)

    async def receive(self) -> Any:
        """Return the next ASGI message; raises Unavailable if its bytes exceed the capacity."""
        message = await self._receive()
        size = len(message.get("body", b""))
        bodies = self._bulkhead.bodies
        if size and bodies is not None:
            bodies.acquire(self._tenant_id, size)
            self._body_bytes += size
        return message

    def charge_to(self, tenant_id: int) -> None:
        """Charge the request to another tenant, before any of its body was received.

        Raises Unavailable if that tenant already uses its share.
        """
        requests = self._bulkhead.requests
        requests.release(self._tenant_id)
        self._has_place = False
        reason = self._bulkhead.refusal(tenant_id, 0)
        if reason is not None:
            raise Unavailable(reason)
        requests.acquire(tenant_id)
        self._has_place = True
        self._tenant_id = tenant_id

    def claim_memory(self, tenant_id: int, amount: int) -> None:
        """Claim memory for the decoded body; raises Unavailable if there is none."""
        self._memory.acquire(tenant_id, amount)
        self._memory_claims.append((tenant_id, amount))

    def release(self) -> None:
        """Release the place, the body bytes and the memory."""
        if self._has_place:
            self._bulkhead.requests.release(self._tenant_id)
        if self._body_bytes and self._bulkhead.bodies is not None:
            self._bulkhead.bodies.release(self._tenant_id, self._body_bytes)
        for tenant_id, amount in self._memory_claims:
            self._memory.release(tenant_id, amount)


def _authorization(scope: Scope) -> bytes | None:
    """Return the Authorization header, the last one if there are several."""
    authorization = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            authorization = value
    return authorization
