"""Decides what one caller may give to another, and whom it may touch.

Nobody makes a key or a user that may do more than its maker, and nobody changes, revokes
or removes one that may: who could set an administrator's password would be one.
"""

from duly.model.tenant import Scope

OF_A_TENANT = frozenset({Scope.SUBMIT, Scope.READ, Scope.MANAGE})
"""What there is to do within one tenant; the rest is the installation's."""


def grantable(scopes: frozenset[Scope]) -> frozenset[Scope]:
    """Return what a caller with `scopes` may give to others."""
    if Scope.ADMIN in scopes:
        return frozenset(Scope)
    return scopes & OF_A_TENANT if Scope.MANAGE in scopes else frozenset()


def beyond(scopes: frozenset[Scope], wanted: frozenset[Scope]) -> list[Scope]:
    """Return what of `wanted` a caller with `scopes` may not give; none means that it may."""
    return sorted(wanted - grantable(scopes))
