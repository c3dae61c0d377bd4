"""The calls about downstreams, the limits of what tasks call, and their methods."""

from typing import TypeVar, Unpack

from duly.client.call import Call, encode, parse_json
from duly.client.calls.task_calls import _get, _page_query, _path_segment, _tenant_query
from duly.client.shapes.downstream_shapes import Downstream, DownstreamFields
from duly.client.shapes.task_shapes import Page

T = TypeVar("T")


def list_downstreams(
    tenant: str | None, limit: int | None, cursor: str | None
) -> Call[Page[Downstream]]:
    """List a page of the limits that apply to a tenant's tasks."""
    return _get("/v1/downstreams", [*_tenant_query(tenant), *_page_query(limit, cursor)])


def set_downstream(key: str, fields: DownstreamFields, tenant: str | None) -> Call[Downstream]:
    """Set the limits of a key."""
    path, query = _downstream_path(key), _tenant_query(tenant)
    return Call("PUT", path, parse_json, query=query, body=encode(fields), repeatable=True)


def remove_downstream(key: str, tenant: str | None, *, everyone: bool) -> Call[None]:
    """Remove the limits of a key."""
    query = (*_tenant_query(tenant), *((("everyone", "true"),) if everyone else ()))
    return Call("DELETE", _downstream_path(key), lambda body: None, query=query)


def _downstream_path(key: str) -> str:
    return f"/v1/downstreams/{_path_segment(key)}"


class DownstreamMethods:
    """Methods for downstreams."""

    def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def list_downstreams(
        self, *, tenant: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Downstream]:
        """Return a page of the limits of what tasks call: the tenant's and everyone's."""
        return self._send(list_downstreams(tenant, limit, cursor))

    def set_downstream(
        self, key: str, *, tenant: str | None = None, **fields: Unpack[DownstreamFields]
    ) -> Downstream:
        """Set the limits of a key, for the tenant or for all tenants with `everyone=True`."""
        return self._send(set_downstream(key, fields, tenant))

    def remove_downstream(
        self, key: str, *, tenant: str | None = None, everyone: bool = False
    ) -> None:
        """Remove the limits of a key."""
        self._send(remove_downstream(key, tenant, everyone=everyone))


class AsyncDownstreamMethods:
    """The same methods with `await`."""

    async def _send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def list_downstreams(
        self, *, tenant: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[Downstream]:
        """Return a page of the limits of what tasks call: the tenant's and everyone's."""
        return await self._send(list_downstreams(tenant, limit, cursor))

    async def set_downstream(
        self, key: str, *, tenant: str | None = None, **fields: Unpack[DownstreamFields]
    ) -> Downstream:
        """Set the limits of a key, for the tenant or for all tenants with `everyone=True`."""
        return await self._send(set_downstream(key, fields, tenant))

    async def remove_downstream(
        self, key: str, *, tenant: str | None = None, everyone: bool = False
    ) -> None:
        """Remove the limits of a key."""
        await self._send(remove_downstream(key, tenant, everyone=everyone))
