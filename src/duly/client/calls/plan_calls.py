"""The calls about plans, tiers and limits, and their methods for both clients."""

from typing import Any, TypeVar, Unpack

from duly.client.call import Call, encode, parse_json
from duly.client.calls.task_calls import _get, _page_query, _path_segment, _tenant_query
from duly.client.shapes.plan_shapes import Limits, Plan, PlanFields, Tier
from duly.client.shapes.task_shapes import Page, ResourceFields

T = TypeVar("T")


def list_plans(limit: int | None, cursor: str | None) -> Call[Page[Plan]]:
    """List a page of plans."""
    return _get("/v1/plans", _page_query(limit, cursor))


def get_plan(name: str) -> Call[Plan]:
    """Get a plan."""
    return _get(f"/v1/plans/{_path_segment(name)}")


def create_plan(name: str, fields: PlanFields) -> Call[Plan]:
    """Create a plan. Not repeatable: a second request would conflict."""
    return Call("POST", "/v1/plans", parse_json, body=encode({"name": name, **fields}))


def update_plan(name: str, fields: PlanFields) -> Call[Plan]:
    """Update a plan."""
    path = f"/v1/plans/{_path_segment(name)}"
    return Call("PATCH", path, parse_json, body=encode(fields), repeatable=True)


def remove_plan(name: str) -> Call[None]:
    """Remove a plan that no tenant has."""
    return Call("DELETE", f"/v1/plans/{_path_segment(name)}", lambda body: None)


def list_tiers(tenant: str | None, limit: int | None, cursor: str | None) -> Call[Page[Tier]]:
    """List a page of the tiers that a tenant can name."""
    return _get("/v1/tiers", [*_tenant_query(tenant), *_page_query(limit, cursor)])


def get_tier(name: str, tenant: str | None) -> Call[Tier]:
    """Get a tier."""
    return _get(_tier_path(name), _tenant_query(tenant))


def create_tier(
    name: str, resources: ResourceFields, tenant: str | None, *, everyone: bool
) -> Call[Tier]:
    """Define a tier. Not repeatable: a second request would conflict."""
    body: dict[str, Any] = {"name": name, "resources": resources, "everyone": everyone}
    return Call("POST", "/v1/tiers", parse_json, query=_tenant_query(tenant), body=encode(body))


def update_tier(
    name: str, resources: ResourceFields, tenant: str | None, *, everyone: bool
) -> Call[Tier]:
    """Change the resources of a tier."""
    body = encode({"resources": resources, "everyone": everyone})
    path, query = _tier_path(name), _tenant_query(tenant)
    return Call("PATCH", path, parse_json, query=query, body=body, repeatable=True)


def remove_tier(name: str, tenant: str | None, *, everyone: bool) -> Call[None]:
    """Remove the definition of a tier."""
    query = (*_tenant_query(tenant), *((("everyone", "true"),) if everyone else ()))
    return Call("DELETE", _tier_path(name), lambda body: None, query=query)


def limits(tenant: str | None = None) -> Call[Limits]:
    """Get a tenant's limits and how much of them is left."""
    return _get("/v1/limits", _tenant_query(tenant))


def _tier_path(name: str) -> str:
    return f"/v1/tiers/{_path_segment(name)}"


class PlanMethods:
    """Methods for plans, tiers and limits."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def list_plans(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Plan]:
        """Return a page of plans; without the scope `admin`, only the caller's own."""
        return self._send(list_plans(limit, cursor))

    def get_plan(self, name: str) -> Plan:
        """Return a plan."""
        return self._send(get_plan(name))

    def create_plan(self, name: str, **fields: Unpack[PlanFields]) -> Plan:
        """Create a plan; limits that are left out are unlimited."""
        return self._send(create_plan(name, fields))

    def update_plan(self, name: str, **fields: Unpack[PlanFields]) -> Plan:
        """Update a plan for every tenant that has it; None removes a limit."""
        return self._send(update_plan(name, fields))

    def remove_plan(self, name: str) -> None:
        """Remove a plan; raises Conflict while a tenant has it."""
        self._send(remove_plan(name))

    def list_tiers(
        self, *, tenant: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Tier]:
        """Return a page of the tiers that the tenant's tasks can name."""
        return self._send(list_tiers(tenant, limit, cursor))

    def get_tier(self, name: str, *, tenant: str | None = None) -> Tier:
        """Return a tier."""
        return self._send(get_tier(name, tenant))

    def create_tier(
        self,
        name: str,
        resources: ResourceFields,
        *,
        tenant: str | None = None,
        everyone: bool = False,
    ) -> Tier:
        """Define a tier for the tenant, or for all tenants with `everyone`."""
        return self._send(create_tier(name, resources, tenant, everyone=everyone))

    def update_tier(
        self,
        name: str,
        resources: ResourceFields,
        *,
        tenant: str | None = None,
        everyone: bool = False,
    ) -> Tier:
        """Change the resources of a tier, kind by kind."""
        return self._send(update_tier(name, resources, tenant, everyone=everyone))

    def remove_tier(self, name: str, *, tenant: str | None = None, everyone: bool = False) -> None:
        """Remove the definition of a tier."""
        self._send(remove_tier(name, tenant, everyone=everyone))

    def limits(self, *, tenant: str | None = None) -> Limits:
        """Return the tenant's limits and how much of them is left."""
        return self._send(limits(tenant))


class AsyncPlanMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def list_plans(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Plan]:
        """Return a page of plans; without the scope `admin`, only the caller's own."""
        return await self._send(list_plans(limit, cursor))

    async def get_plan(self, name: str) -> Plan:
        """Return a plan."""
        return await self._send(get_plan(name))

    async def create_plan(self, name: str, **fields: Unpack[PlanFields]) -> Plan:
        """Create a plan; limits that are left out are unlimited."""
        return await self._send(create_plan(name, fields))

    async def update_plan(self, name: str, **fields: Unpack[PlanFields]) -> Plan:
        """Update a plan for every tenant that has it; None removes a limit."""
        return await self._send(update_plan(name, fields))

    async def remove_plan(self, name: str) -> None:
        """Remove a plan; raises Conflict while a tenant has it."""
        await self._send(remove_plan(name))

    async def list_tiers(
        self, *, tenant: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Tier]:
        """Return a page of the tiers that the tenant's tasks can name."""
        return await self._send(list_tiers(tenant, limit, cursor))

    async def get_tier(self, name: str, *, tenant: str | None = None) -> Tier:
        """Return a tier."""
        return await self._send(get_tier(name, tenant))

    async def create_tier(
        self,
        name: str,
        resources: ResourceFields,
        *,
        tenant: str | None = None,
        everyone: bool = False,
    ) -> Tier:
        """Define a tier for the tenant, or for all tenants with `everyone`."""
        return await self._send(create_tier(name, resources, tenant, everyone=everyone))

    async def update_tier(
        self,
        name: str,
        resources: ResourceFields,
        *,
        tenant: str | None = None,
        everyone: bool = False,
    ) -> Tier:
        """Change the resources of a tier, kind by kind."""
        return await self._send(update_tier(name, resources, tenant, everyone=everyone))

    async def remove_tier(
        self, name: str, *, tenant: str | None = None, everyone: bool = False
    ) -> None:
        """Remove the definition of a tier."""
        await self._send(remove_tier(name, tenant, everyone=everyone))

    async def limits(self, *, tenant: str | None = None) -> Limits:
        """Return the tenant's limits and how much of them is left."""
        return await self._send(limits(tenant))
