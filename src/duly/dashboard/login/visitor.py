"""The user of the dashboard, and what the user may do there."""

import msgspec


class Visitor(msgspec.Struct, frozen=True):
    """The user of a dashboard session, and the scopes of the session's key."""

    scopes: frozenset[str]
    tenant: str | None = None
    user: str | None = None

    @property
    def name(self) -> str:
        """The user's name as shown on the page."""
        return " / ".join(part for part in (self.tenant, self.user) if part) or "administrator"

    def may(self, scope: str) -> bool:
        """Return True if the scopes include `scope`; only a prediction, because the API decides."""
        return scope in self.scopes or "admin" in self.scopes


ADMINISTRATOR = Visitor(frozenset({"admin"}))
"""The visitor of a session that the one-time link opened."""
