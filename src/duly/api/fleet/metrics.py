"""Prometheus metrics: this server's counters, and gauges read from the database."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from duly import telemetry
from duly.api.auth import Access
from duly.api.fleet import fleet_gauges
from duly.api.requests.lookups import cross_tenant_connection
from duly.api.requests.query import query_of
from duly.api.routes import components_of, route
from duly.model.drift import DriftKind
from duly.store.fleet import overview, queue_gauges, queues
from duly.store.maintenance import audit
from duly.store.maintenance.audit import Audit

REQUEST_COUNTER = Counter(
    "duly_http_requests",
    "Requests that were answered, by route and class of status.",
    ["method", "route", "status"],
    registry=telemetry.REGISTRY,
)
REQUEST_COUNTERS: dict[tuple[str, str, int], Counter] = {}
"""A cache of labelled counters, since `labels` is slow; bounded by the number of routes."""
KNOWN_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


@route(
    "GET",
    "/metrics",
    "Read the metrics",
    access=Access.METRICS,
    response_body=str,
    media_type="text/plain",
)
async def metrics(request: Request) -> Response:
    """Read the metrics in the Prometheus text format."""
    query_of(request)
    components = components_of(request)
    urgent_slack = components.settings.scheduling.urgent_slack
    async with cross_tenant_connection(components) as conn:
        live = await overview.count_live(conn)
        nodes = await overview.read_nodes(conn)
        waiting = await queue_gauges.count_waiting(conn, urgent_slack=urgent_slack)
        definitions = await queues.read(conn)
        audits = await audit.read(conn)
    gauges = CollectorRegistry()
    fleet_gauges.add_nodes(gauges, nodes)
    fleet_gauges.add_queues(gauges, waiting, definitions, urgent_slack)
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
    """Add the findings of the audit, which one server runs; none before its first round."""
    drift = Gauge("duly_drift", "Things that are not as they should be.", ["kind"], registry=gauges)
    completed = Gauge(
        "duly_audit_completed_timestamp_seconds",
        "When the last round of the audit was complete.",
        ["scope"],
        registry=gauges,
    )
    for result in audits:
        completed.labels(result.scope.value).set(result.completed_at.timestamp())
        for kind in DriftKind:
            drift.labels(kind.value).inc(0)
        for name, finding in result.drift.items():
            drift.labels(name).inc(finding.count)


def count_responses(method: str, path: str, status: int, responses: int = 1) -> None:
    """Count responses by route; unknown methods share a label, because clients can invent them."""
    method = method if method in KNOWN_METHODS else "other"
    key = (method, path, status // 100)
    if key not in REQUEST_COUNTERS:
        REQUEST_COUNTERS[key] = REQUEST_COUNTER.labels(method, path, f"{key[2]}xx")
    REQUEST_COUNTERS[key].inc(responses)


HANDLERS = [metrics]
