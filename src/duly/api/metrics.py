"""Metrics for Prometheus: what this server has counted, and what is live in the database."""

from litestar.types import Message, Scope
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from duly import telemetry
from duly.api.answer import Answer
from duly.api.auth import Access
from duly.api.operation import ApiRequest, parts_of, route
from duly.api.query import query_of
from duly.api.reading import reading
from duly.store import overview

REQUESTS = Counter(
    "duly_http_requests",
    "Requests that were answered, by route and class of status.",
    ["method", "route", "status"],
    registry=telemetry.REGISTRY,
)
SEEN: dict[tuple[str, str, int], Counter] = {}
"""The counter for each combination, which are as few as the routes: looking it up is slow."""
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


@route(
    "GET", "/metrics", "Read the metrics", access=Access.ADMIN, gives=str, media_type="text/plain"
)
async def metrics(request: ApiRequest) -> Answer:
    """Return everything that is counted, in the format of Prometheus."""
    query_of(request)
    async with reading(parts_of(request)) as conn:
        live = await overview.count_live(conn)
    gauges = CollectorRegistry()
    tasks = Gauge(
        "duly_tasks_live", "Live tasks, counted up to 100,000.", ["status"], registry=gauges
    )
    tasks.labels("scheduled").set(live.scheduled)
    tasks.labels("waiting").set(live.waiting)
    tasks.labels("running").set(live.running)
    body = generate_latest(telemetry.REGISTRY) + generate_latest(gauges)
    return Answer(body, media_type=CONTENT_TYPE_LATEST.encode())


def count(message: Message, scope: Scope) -> None:
    """Count an answer as it begins; unknown paths share a label, because anyone can invent them."""
    if message["type"] == "http.response.start":
        asked = str(scope.get("method"))
        method = asked if asked in METHODS else "other"
        key = (method, scope.get("path_template") or "unknown", message["status"] // 100)
        if key not in SEEN:
            SEEN[key] = REQUESTS.labels(method, key[1], f"{key[2]}xx")
        SEEN[key].inc()


HANDLERS = [metrics]
