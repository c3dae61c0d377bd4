"""Reads a page of the list of tasks, of one tenant or of all."""

from duly.api.requests.lookups import (
    cross_tenant_connection,
    explain_listed,
    listing_connection,
    scoped_connection,
)
from duly.api.requests.query import Query, encode_cursor, parent_of, parse_task_filter
from duly.api.requests.tenant_selection import TenantPage, covers_all_tenants
from duly.api.tasks import task_shapes
from duly.model.tenant import Credential
from duly.server.components import Components
from duly.store.attempts import stages
from duly.store.tasks import all_tenants, views
from duly.store.tasks.views import TaskFilter


async def read_task_page(
    components: Components, credential: Credential, query: Query
) -> TenantPage[task_shapes.Task]:
    """Return the page of tasks that a query asks for: ids first, then their rows."""
    limit = query.limit()
    all_of_them = covers_all_tenants(credential, query)
    pick = _pick_of_all_tenants if all_of_them else _pick_of_tenant
    task_filter, ids = await pick(components, credential, query, limit + 1)
    tenant_id = None if all_of_them else credential.tenant_id
    page = ids[:limit]
    async with scoped_connection(components, credential, all_tenants=all_of_them) as conn:
        tasks = await views.read_many(conn, tenant_id, page, task_filter.statuses)
    reasons = await explain_listed(components, tasks)
    scheduling = components.settings.scheduling
    return TenantPage(
        [task_shapes.task(view, view.tenant, scheduling, reasons.get(view.id)) for view in tasks],
        encode_cursor(page[-1]) if len(ids) > limit else None,
        None if all_of_them else credential.tenant,
    )


async def _pick_of_tenant(
    components: Components, credential: Credential, query: Query, limit: int
) -> tuple[TaskFilter, list[int]]:
    before, tenant_id = query.before_id(), credential.tenant_id
    if (parent := parent_of(query)) is not None:
        async with listing_connection(components, credential, by_status=False) as conn:
            found = await stages.pick_children(conn, parent, tenant_id, before=before, limit=limit)
        return TaskFilter(), list(found)
    by_status = bool(query.get_all("status") or query.get("node") or query.flag("overdue"))
    async with listing_connection(components, credential, by_status=by_status) as conn:
        task_filter = await parse_task_filter(conn, query, matches_refs=True)
        return task_filter, await views.pick(
            conn, tenant_id, task_filter, before=before, limit=limit
        )


async def _pick_of_all_tenants(
    components: Components, credential: Credential, query: Query, limit: int
) -> tuple[TaskFilter, list[int]]:
    before = query.before_id()
    if (parent := parent_of(query)) is not None:
        async with cross_tenant_connection(components, credential.tenant_id) as conn:
            found = await stages.pick_children(conn, parent, None, before=before, limit=limit)
        return TaskFilter(), list(found)
    async with cross_tenant_connection(components, credential.tenant_id) as conn:
        task_filter = await parse_task_filter(conn, query, matches_refs=True)
        return task_filter, await all_tenants.pick(conn, task_filter, before=before, limit=limit)
