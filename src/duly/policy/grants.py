"""Decides which scopes a caller may grant to others.

A key can only grant scopes that it holds itself, and cannot change, revoke or remove a key or
user with more: setting an administrator's password would amount to being one.
"""

from duly.model.tenant import Scope

TENANT_SCOPES = frozenset({Scope.SUBMIT, Scope.READ, Scope.MANAGE})
"""Scopes confined to one tenant; the others concern the whole installation."""


def grantable(scopes: frozenset[Scope]) -> frozenset[Scope]:
    """Return the scopes that a caller with `scopes` may grant."""
    if Scope.ADMIN in scopes:
        return frozenset(Scope)
    return scopes & TENANT_SCOPES if Scope.MANAGE in scopes else frozenset()


def not_grantable(scopes: frozenset[Scope], wanted: frozenset[Scope]) -> list[Scope]:
    """Return the `wanted` scopes that a caller with `scopes` may not grant; empty: it may."""
    return sorted(wanted - grantable(scopes))
