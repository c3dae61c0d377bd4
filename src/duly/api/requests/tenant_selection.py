"""Selects the tenants whose rows a list covers.

An administrator lists the rows of all tenants, unless the request names one with `?tenant=`. Every
other caller lists its own. This is for reads only: what changes many objects stays within one
tenant, the caller's own or the one that an administrator names.
"""

from typing import Generic, TypeVar

import msgspec

from duly.api.requests.query import Query
from duly.model.tenant import Credential, Scope

T = TypeVar("T")


class TenantPage(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list, newest first; pass `next_cursor` as `cursor` for the next page."""

    items: list[T]
    next_cursor: str | None
    tenant: str | None
    """The tenant whose items are listed; null: all tenants, for administrators."""


def covers_all_tenants(credential: Credential, query: Query) -> bool:
    """Return True if a request reads the rows of all tenants."""
    return Scope.ADMIN in credential.scopes and query.get("tenant") is None
