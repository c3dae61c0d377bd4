"""The calls of the API about plans, tiers and limits, and their methods for both clients."""

from typing import Any, TypeVar, Unpack

from duly.client.call import Call, encode, parse_json
from duly.client.calls import _for, _get, _page, _segment
from duly.client.plan_shapes import Limits, Plan, PlanFields, Tier
from duly.client.shapes import Page, ResourceFields

T = TypeVar("T")


def list_plans(limit: int | None, cursor: str | None) -> Call[Page[Plan]]:
    """Ask for a page of the plans."""
    return _get("/v1/plans", _page(limit, cursor))


def get_plan(name: str) -> Call[Plan]:
    """Ask for one plan."""
    return _get(f"/v1/plans/{_segment(name)}")


def create_plan(name: str, fields: PlanFields) -> Call[Plan]:
    """Make a plan. Sent twice, the second would find it there."""
    return Call("POST", "/v1/plans", parse_json, body=encode({"name": name, **fields}))


def update_plan(name: str, fields: PlanFields) -> Call[Plan]:
    """Change a plan."""
    path = f"/v1/plans/{_segment(name)}"
    return Call("PATCH", path, parse_json, body=encode(fields), repeatable=True)


def remove_plan(name: str) -> Call[None]:
    """Remove a plan that no tenant has."""
    return Call("DELETE", f"/v1/plans/{_segment(name)}", lambda body: None)


def list_tiers(tenant: str | None) -> Call[Page[Tier]]:
    """Ask for the tiers that a tenant knows."""
    return _get("/v1/tiers", _for(tenant))


def get_tier(name: str, tenant: str | None) -> Call[Tier]:
    """Ask for one tier."""
    return _get(_tier(name), _for(tenant))


def create_tier(
    name: str, resources: ResourceFields, tenant: str | None, *, everyone: bool
) -> Call[Tier]:
    """Say what a name stands for. Sent twice, the second would find it there."""
    body: dict[str, Any] = {"name": name, "resources": resources, "everyone": everyone}
    return Call("POST", "/v1/tiers", parse_json, query=_for(tenant), body=encode(body))


def update_tier(
    name: str, resources: ResourceFields, tenant: str | None, *, everyone: bool
) -> Call[Tier]:
    """Change what a name stands for."""
    body = encode({"resources": resources, "everyone": everyone})
    path, query = _tier(name), _for(tenant)
    return Call("PATCH", path, parse_json, query=query, body=body, repeatable=True)


def remove_tier(name: str, tenant: str | None, *, everyone: bool) -> Call[None]:
    """Take back what was said of a name."""
    query = (*_for(tenant), *((("everyone", "true"),) if everyone else ()))
    return Call("DELETE", _tier(name), lambda body: None, query=query)


def limits(tenant: str | None = None) -> Call[Limits]:
    """Ask what a tenant may have, and what is left."""
    return _get("/v1/limits", _for(tenant))


def _tier(name: str) -> str:
    return f"/v1/tiers/{_segment(name)}"


class PlanMethods:
    """What a client can do about plans, tiers and limits."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def list_plans(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Plan]:
        """Return a page of the plans; without the scope admin, the own one."""
        return self._send(list_plans(limit, cursor))

    def get_plan(self, name: str) -> Plan:
        """Return what a plan grants."""
        return self._send(get_plan(name))

    def create_plan(self, name: str, **fields: Unpack[PlanFields]) -> Plan:
        """Make a plan; what is left out has no limit."""
        return self._send(create_plan(name, fields))

    def update_plan(self, name: str, **fields: Unpack[PlanFields]) -> Plan:
        """Change a plan for every tenant that has it; None takes a limit away."""
        return self._send(update_plan(name, fields))

    def remove_plan(self, name: str) -> None:
        """Remove a plan that no tenant has."""
        self._send(remove_plan(name))

    def list_tiers(self, *, tenant: str | None = None) -> Page[Tier]:
        """Return the tiers that the tenant knows."""
        return self._send(list_tiers(tenant))

    def get_tier(self, name: str, *, tenant: str | None = None) -> Tier:
        """Return what the name of a tier stands for."""
        return self._send(get_tier(name, tenant))

    def create_tier(
        self,
        name: str,
        resources: ResourceFields,
        *,
        tenant: str | None = None,
        everyone: bool = False,
    ) -> Tier:
        """Say what a name stands for: for the tenant, or for everyone."""
        return self._send(create_tier(name, resources, tenant, everyone=everyone))

    def update_tier(
        self,
        name: str,
        resources: ResourceFields,
        *,
        tenant: str | None = None,
        everyone: bool = False,
    ) -> Tier:
        """Change what a name stands for, kind by kind."""
        return self._send(update_tier(name, resources, tenant, everyone=everyone))

    def remove_tier(self, name: str, *, tenant: str | None = None, everyone: bool = False) -> None:
        """Take back what was said of a name."""
        self._send(remove_tier(name, tenant, everyone=everyone))

    def limits(self, *, tenant: str | None = None) -> Limits:
        """Return what the tenant may have, and what is left of it."""
        return self._send(limits(tenant))


class AsyncPlanMethods:
    """The same with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def list_plans(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Plan]:
        """Return a page of the plans; without the scope admin, the own one."""
        return await self._send(list_plans(limit, cursor))

    async def get_plan(self, name: str) -> Plan:
        """Return what a plan grants."""
        return await self._send(get_plan(name))

    async def create_plan(self, name: str, **fields: Unpack[PlanFields]) -> Plan:
        """Make a plan; what is left out has no limit."""
        return await self._send(create_plan(name, fields))

    async def update_plan(self, name: str, **fields: Unpack[PlanFields]) -> Plan:
        """Change a plan for every tenant that has it; None takes a limit away."""
        return await self._send(update_plan(name, fields))

    async def remove_plan(self, name: str) -> None:
        """Remove a plan that no tenant has."""
        await self._send(remove_plan(name))

    async def list_tiers(self, *, tenant: str | None = None) -> Page[Tier]:
        """Return the tiers that the tenant knows."""
        return await self._send(list_tiers(tenant))

    async def get_tier(self, name: str, *, tenant: str | None = None) -> Tier:
        """Return what the name of a tier stands for."""
        return await self._send(get_tier(name, tenant))

    async def create_tier(
        self,
        name: str,
        resources: ResourceFields,
        *,
        tenant: str | None = None,
        everyone: bool = False,
    ) -> Tier:
        """Say what a name stands for: for the tenant, or for everyone."""
        return await self._send(create_tier(name, resources, tenant, everyone=everyone))

    async def update_tier(
        self,
        name: str,
        resources: ResourceFields,
        *,
        tenant: str | None = None,
        everyone: bool = False,
    ) -> Tier:
        """Change what a name stands for, kind by kind."""
        return await self._send(update_tier(name, resources, tenant, everyone=everyone))

    async def remove_tier(
        self, name: str, *, tenant: str | None = None, everyone: bool = False
    ) -> None:
        """Take back what was said of a name."""
        await self._send(remove_tier(name, tenant, everyone=everyone))

    async def limits(self, *, tenant: str | None = None) -> Limits:
        """Return what the tenant may have, and what is left of it."""
        return await self._send(limits(tenant))
