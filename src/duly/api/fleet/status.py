"""Routes for health checks and the status of the cluster."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import duly
from duly.api.accounts.tenant_shares import read_shares
from duly.api.auth import Access
from duly.api.fleet import fleet_shapes
from duly.api.fleet.fleet_shapes import ClusterStatus
from duly.api.requests.lookups import cross_tenant_connection
from duly.api.requests.query import query_of
from duly.api.requests.tenant_selection import covers_all_tenants
from duly.api.responses import as_json
from duly.api.routes import components_of, credential_of, route
from duly.api.tasks import task_shapes
from duly.errors import Unavailable
from duly.model import drift
from duly.model.node import NodeStatus
from duly.model.resources import NO_RESOURCES, field_name
from duly.model.tenant import Scope
from duly.policy.audit import meaning
from duly.server.components import Components
from duly.server.scheduling.peak_time import read_peak
from duly.store.database import Connection
from duly.store.fleet import overview
from duly.store.fleet.overview import LeaderStatus
from duly.store.maintenance import audit
from duly.store.maintenance.audit import Audit
from duly.store.tasks import all_tenants, overdue

WINDOW_HOURS = 24
WINDOW = timedelta(hours=WINDOW_HOURS)


@route(
    "GET",
    "/healthz",
    "Check that the server is alive",
    access=Access.PUBLIC,
    response_body=str,
    media_type="text/plain",
)
async def healthz(request: Request) -> Response:
    """Check that the server is alive. It does not depend on the database."""
    return PlainTextResponse(b"ok\n")


@route(
    "GET",
    "/readyz",
    "Check that the server is ready",
    access=Access.PUBLIC,
    response_body=str,
    media_type="text/plain",
)
async def readyz(request: Request) -> Response:
    """Check that the server is ready: 503 while it has no database or not its object store."""
    components = components_of(request)
    async with cross_tenant_connection(components) as conn:
        if not await overview.is_migrated(conn):
            raise Unavailable("The database is not ready.")
    if components.store_guard.problem is not None:
        raise Unavailable(components.store_guard.problem)
    return PlainTextResponse(b"ready\n")


@route(
    "GET",
    "/v1/status",
    "Get the status of the cluster",
    access=Access.READ,
    response_body=fleet_shapes.ClusterStatus,
)
async def status(request: Request) -> Response:
    """Get the status of the cluster, with counts of tasks up to 100,000.

    Administrators see all tenants' tasks and the whole cluster, others only their own tasks.
    """
    components, credential = components_of(request), credential_of(request)
    query = query_of(request)
    all_of_them = covers_all_tenants(credential, query)
    # Counting stops after a number of rows of any tenant, so it needs to see all of them.
    async with cross_tenant_connection(components) as conn:
        lead = await overview.read_leader(conn)
        counted = await all_tenants.count_tasks(conn, window=WINDOW) if all_of_them else None
        tasks = (
            await overview.count_tasks(conn, credential.tenant_id, window=WINDOW)
            if counted is None
            else all_tenants.total(counted)
        )
        shown = fleet_shapes.ClusterStatus(
            version=None,
            server=components.cluster_manager.name,
            tenant=None if all_of_them else credential.tenant,
            database=None,
            tasks=tasks,
            overdue=await overdue.count(conn, None if all_of_them else credential.tenant_id),
            tenants=None if counted is None else await _with_shares(conn, components, counted),
            window_hours=WINDOW_HOURS,
            nodes=None,
            capacity=None,
            free=None,
            peak=await _peak(conn, components, lead, None if all_of_them else credential.tenant_id),
            leader=None,
            time=lead.time,
            audit=None,
        )
        if Scope.ADMIN in credential.scopes:
            shown = await _with_cluster(conn, components, shown, lead)
    return as_json(shown)


async def _peak(
    conn: Connection, components: Components, lead: LeaderStatus, tenant_id: int | None
) -> fleet_shapes.PeakStatus | None:
    """Return since when it is peak time, and how many tasks of a tenant, or of all, wait for it."""
    if not lead.peak:
        return None
    scheduling = components.settings.scheduling
    peak = await read_peak(conn, await overview.read_offers(conn), scheduling, lead.time)
    if not peak.is_peak:
        return None
    postponed = await overview.count_postponed(
        conn,
        tenant_id,
        list(peak.since),
        urgent_slack=scheduling.urgent_slack,
        postpone_slack=scheduling.postpone_slack,
    )
    kinds = sorted(map(field_name, peak.since))
    return fleet_shapes.PeakStatus(min(peak.since.values()), kinds, postponed)


async def _with_shares(
    conn: Connection, components: Components, counted: Sequence[all_tenants.TenantTasks]
) -> list[fleet_shapes.TenantTasks]:
    shares = await read_shares(conn, components.settings.scheduling, with_fair_shares=False)
    return [
        fleet_shapes.TenantTasks(tenant.tenant, tenant.tasks, shares.share(tenant.tenant_id))
        for tenant in counted
    ]


async def _with_cluster(
    conn: Connection, components: Components, shown: ClusterStatus, lead: LeaderStatus
) -> ClusterStatus:
    """Return the status with what only administrators see."""
    nodes = await overview.read_nodes(conn)
    audits = await audit.read(conn)
    capacity = free = NO_RESOURCES
    for node in nodes:
        if node.tenant is not None:
            continue
        if not node.status.is_down:
            capacity = capacity.plus(node.capacity)
        if node.takes_tasks:
            free = free.plus(node.free)
    counts = Counter(node.status for node in nodes)
    return msgspec.structs.replace(
        shown,
        version=duly.__version__,
        database=fleet_shapes.DatabaseStatus(
            lead.version, row_security=bool(components.settings.database.request_role)
        ),
        nodes=fleet_shapes.NodeCounts(**{kind.value: counts[kind] for kind in NodeStatus}),
        capacity=task_shapes.amounts(capacity),
        free=task_shapes.amounts(free),
        leader=lead.leader,
        audit=audit_status(audits),
    )


def audit_status(audits: Sequence[Audit]) -> fleet_shapes.AuditStatus:
    """Merge the rounds of both scopes."""
    completed = {result.scope: result.completed_at for result in audits}
    count: Counter[str] = Counter()
    examples: dict[str, list[int]] = {}
    for result in audits:
        for kind, finding in result.drift.items():
            count[kind] += finding.count
            examples.setdefault(kind, []).extend(finding.examples)
    return fleet_shapes.AuditStatus(
        completed_at=completed.get(drift.AuditScope.LIVE),
        history_completed_at=completed.get(drift.AuditScope.HISTORY),
        drift=[
            fleet_shapes.DriftReport(
                kind, count[kind], meaning(kind), [str(example) for example in examples[kind]]
            )
            for kind in sorted(count)
        ],
        repaired=sum(result.repaired for result in audits),
        repaired_at=max(
            (result.repaired_at for result in audits if result.repaired_at), default=None
        ),
    )


HANDLERS = [healthz, readyz, status]
