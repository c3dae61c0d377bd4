"""Requests that tests of tenants, users and keys share."""

from typing import Any

from tests.api.conftest import Api


async def create(api: Api, path: str, **body: Any) -> dict[str, Any]:
    """Create an object, which must succeed, and return its JSON."""
    response = await api.call("POST", path, json=body)
    assert response.status_code == 201, response.text
    result: dict[str, Any] = response.json()
    return result


async def update(api: Api, path: str, **body: Any) -> dict[str, Any]:
    """Update an object, which must succeed, and return its JSON."""
    response = await api.call("PATCH", path, json=body)
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


async def remove(api: Api, path: str) -> None:
    """Remove an object, which must succeed."""
    response = await api.call("DELETE", path)
    assert (response.status_code, response.content) == (204, b""), response.text


async def with_new_key(api: Api, *scopes: str, tenant: str | None = "acme", **body: Any) -> Api:
    """Return the API with a new key of an existing tenant."""
    if tenant is not None:
        body["tenant"] = tenant
    key = await create(api, "/v1/keys", scopes=list(scopes), **body)
    return api.with_key(key["key"])


async def audited_actions(api: Api, query: str = "") -> list[str]:
    """Return the actions and targets in the audit log, oldest first."""
    entries = await api.get(f"/v1/audit{query}")
    return [f"{entry['action']} {entry['target']}" for entry in reversed(entries["items"])]
