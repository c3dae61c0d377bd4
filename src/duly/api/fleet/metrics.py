"""Metrics for Prometheus: what this server has counted, and what is live in the database."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from duly import telemetry
from duly.api.auth import Access
from duly.api.query import query_of
from duly.api.reading import overseeing
from duly.api.routes import parts_of, route
from duly.model.drift import Kind
from duly.store import audit, overview
from duly.store.audit import Audit

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
async def metrics(request: Request) -> Response:
    """Return everything that is counted, in the format of Prometheus."""
    query_of(request)
    async with overseeing(parts_of(request)) as conn:
        live = await overview.count_live(conn)
        audits = await audit.read(conn)
    gauges = CollectorRegistry()
    tasks = Gauge(
        "duly_tasks_live", "Live tasks, counted up to 100,000.", ["status"], registry=gauges
    )
    tasks.labels("scheduled").set(live.scheduled)
    tasks.labels("waiting").set(live.waiting)
    tasks.labels("running").set(live.running)
    _add_audits(gauges, audits)
    body = generate_latest(telemetry.REGISTRY) + generate_latest(gauges)
    return Response(body, media_type=CONTENT_TYPE_LATEST)


def _add_audits(gauges: CollectorRegistry, audits: Sequence[Audit]) -> None:
    """Add what the audit found, whichever server leads; nothing before its first round."""
    drift = Gauge("duly_drift", "Things that are not as they should be.", ["kind"], registry=gauges)
    completed = Gauge(
        "duly_audit_completed_timestamp_seconds",
        "When the last round of the audit was complete.",
        ["scope"],
        registry=gauges,
    )
    for one in audits:
        completed.labels(one.scope.value).set(one.completed_at.timestamp())
        for kind in Kind:
            drift.labels(kind.value).inc(0)
        for name, seen in one.drift.items():
            drift.labels(name).inc(seen.count)


def count(asked: str, path: str, status: int, answers: int = 1) -> None:
    """Count answers by their route; unknown paths share a label, because anyone can invent them."""
    method = asked if asked in METHODS else "other"
    key = (method, path, status // 100)
    if key not in SEEN:
        SEEN[key] = REQUESTS.labels(method, path, f"{key[2]}xx")
    SEEN[key].inc(answers)


HANDLERS = [metrics]
