"""Who looks at the pages, and what it may do there."""

import msgspec


class Visitor(msgspec.Struct, frozen=True):
    """Who looks at the pages, and what its key is good for."""

    scopes: frozenset[str]
    tenant: str | None = None
    user: str | None = None

    @property
    def name(self) -> str:
        """What the page says of who it is."""
        return " / ".join(part for part in (self.tenant, self.user) if part) or "administrator"

    def may(self, scope: str) -> bool:
        """Say whether the API would let it; what it really may, the API decides."""
        return scope in self.scopes or "admin" in self.scopes


ADMINISTRATOR = Visitor(frozenset({"admin"}))
"""Whoever opened the one-time link."""
