"""The whole at a glance, and whether this server is there and ready."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import duly
from duly.api import cluster_shapes, shapes
from duly.api.auth import Access
from duly.api.query import query_of
from duly.api.reading import overseeing
from duly.api.responses import as_json
from duly.api.routes import credential_of, parts_of, route
from duly.errors import Unavailable
from duly.model import drift
from duly.model.node import NodeStatus
from duly.model.resources import NOTHING
from duly.model.tenant import Scope
from duly.policy.audit import meaning
from duly.store import audit, overview
from duly.store.audit import Audit

WINDOW_HOURS = 24


@route(
    "GET",
    "/healthz",
    "Say that the server is there",
    access=Access.PUBLIC,
    gives=str,
    media_type="text/plain",
)
async def healthz(request: Request) -> Response:
    """Response, without asking anything else."""
    return PlainTextResponse(b"ok\n")


@route(
    "GET",
    "/readyz",
    "Say whether the server can serve",
    access=Access.PUBLIC,
    gives=str,
    media_type="text/plain",
)
async def readyz(request: Request) -> Response:
    """Response 200 if the database answers, and 503 if it does not."""
    async with overseeing(parts_of(request)) as conn:
        if not await overview.answers(conn):
            raise Unavailable("The database is not ready.")
    return PlainTextResponse(b"ready\n")


@route(
    "GET",
    "/v1/status",
    "See the whole at a glance",
    access=Access.READ,
    gives=cluster_shapes.ClusterStatus,
)
async def status(request: Request) -> Response:
    """Count the caller's tasks, and the nodes; counts stop at 100,000."""
    parts, credential = parts_of(request), credential_of(request)
    query_of(request)
    window = timedelta(hours=WINDOW_HOURS)
    # Counts stop at a number of rows, whoever's they are: so they are counted among all.
    async with overseeing(parts) as conn:
        lead = await overview.read_lead(conn)
        tasks = await overview.count_tasks(conn, credential.tenant_id, window=window)
        nodes = await overview.read_nodes(conn)
        audits = await audit.read(conn)
    capacity = free = NOTHING
    for node in nodes:
        if node.status is not NodeStatus.LOST:
            capacity, free = capacity.plus(node.capacity), free.plus(node.free)
    counts = Counter(node.status for node in nodes)
    return as_json(
        cluster_shapes.ClusterStatus(
            version=duly.__version__,
            server=parts.cluster_manager.name,
            database=cluster_shapes.DatabaseAnswer(
                lead.version, row_security=bool(parts.settings.database.request_role)
            ),
            tasks=tasks,
            window_hours=WINDOW_HOURS,
            nodes=cluster_shapes.NodeCounts(**{one.value: counts[one] for one in NodeStatus}),
            capacity=shapes.amounts(capacity),
            free=shapes.amounts(free),
            leader=lead.leader,
            time=lead.time,
            audit=audit_answer(audits, with_ids=Scope.ADMIN in credential.scopes),
        )
    )


def audit_answer(audits: Sequence[Audit], *, with_ids: bool) -> cluster_shapes.AuditAnswer:
    """Put the rounds of both scopes together; ids are other tenants', so not for everyone."""
    completed = {one.scope: one.completed_at for one in audits}
    count: Counter[str] = Counter()
    examples: dict[str, list[int]] = {}
    for one in audits:
        for kind, seen in one.drift.items():
            count[kind] += seen.count
            examples.setdefault(kind, []).extend(seen.examples if with_ids else [])
    return cluster_shapes.AuditAnswer(
        completed_at=completed.get(drift.Scope.LIVE),
        history_completed_at=completed.get(drift.Scope.HISTORY),
        drift=[
            cluster_shapes.DriftAnswer(
                kind, count[kind], meaning(kind), [str(one) for one in examples[kind]]
            )
            for kind in sorted(count)
        ],
        repaired=sum(one.repaired for one in audits),
        repaired_at=max((one.repaired_at for one in audits if one.repaired_at), default=None),
    )


HANDLERS = [healthz, readyz, status]
