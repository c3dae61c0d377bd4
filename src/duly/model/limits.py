"""What a tenant may have at once, by its plan and by whether it is suspended."""

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """How much of a tenant may run; None is no limit."""

    max_running: int | None = None
    max_resources: dict[str, int] | None = None
    """By kind; a kind that is left out has no limit."""
    is_suspended: bool = False
    """Whether nothing of it may start."""


UNLIMITED = Limits()
