"""Duly: a distributed, multi-tenant task scheduler. In due time, as promised."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duly.client.aio import AsyncClient
    from duly.client.retry import Patience
    from duly.client.sync import Client
    from duly.errors import (
        ConfigError,
        Conflict,
        DulyError,
        Forbidden,
        Invalid,
        KeyReused,
        LimitExceeded,
        Malformed,
        NotFound,
        TaskFailed,
        TooLarge,
        Unauthenticated,
        Unavailable,
        Unreachable,
    )

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "ConfigError",
    "Conflict",
    "DulyError",
    "Forbidden",
    "Invalid",
    "KeyReused",
    "LimitExceeded",
    "Malformed",
    "NotFound",
    "Patience",
    "TaskFailed",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
]

PUBLIC_MODULES = {
    "AsyncClient": "duly.client.aio",
    "Client": "duly.client.sync",
    "Patience": "duly.client.retry",
}
"""Modules of the public names that are not errors."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import duly` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'duly' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(PUBLIC_MODULES.get(name, "duly.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
