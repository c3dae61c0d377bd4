"""Limits on a tenant's running tasks, from its plan and its suspension."""

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Limits on what a tenant may run at once; None is no limit."""

    max_running: int | None = None
    max_resources: dict[str, int] | None = None
    """By kind; a kind that is left out has no limit."""
    is_suspended: bool = False
    """Whether no task of the tenant may start."""


UNLIMITED = Limits()
