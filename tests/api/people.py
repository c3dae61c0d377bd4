"""What tests of tenants, users and keys do over and over."""

from typing import Any

from tests.api.conftest import Api


async def made(api: Api, path: str, **body: Any) -> dict[str, Any]:
    """Create something, which must be new, and return the answer."""
    answer = await api.call("POST", path, json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def changed(api: Api, path: str, **body: Any) -> dict[str, Any]:
    """Change something, and return the answer."""
    answer = await api.call("PATCH", path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def removed(api: Api, path: str) -> None:
    """Remove something, which must be there."""
    answer = await api.call("DELETE", path)
    assert (answer.status_code, answer.content) == (204, b""), answer.text


async def holder(api: Api, *scopes: str, tenant: str | None = "acme", **body: Any) -> Api:
    """Return the API for the holder of a new key of a tenant that exists."""
    if tenant is not None:
        body["tenant"] = tenant
    key = await made(api, "/v1/keys", scopes=list(scopes), **body)
    return api.with_key(key["key"])


async def actions(api: Api, query: str = "") -> list[str]:
    """Return what was done and to what, the first first."""
    found = await api.get(f"/v1/audit{query}")
    return [f"{one['action']} {one['target']}" for one in reversed(found["items"])]
