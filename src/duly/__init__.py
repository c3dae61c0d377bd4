"""Duly: a distributed, multi-tenant task scheduler. In due time, as promised."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duly import testing
    from duly.client.aio import AsyncClient
    from duly.client.functions.app import App
    from duly.client.functions.context import Context, context
    from duly.client.functions.control import Cancelled, GiveUp, Retry
    from duly.client.functions.graph import Node
    from duly.client.functions.handle import Handle
    from duly.client.functions.parameters import Secret
    from duly.client.functions.task import Task
    from duly.client.functions.waiting import (
        as_completed,
        as_completed_async,
        wait,
        wait_async,
    )
    from duly.client.retry import Patience
    from duly.client.sync import Client
    from duly.errors import (
        ArgumentError,
        ConfigError,
        Conflict,
        DulyError,
        Forbidden,
        Invalid,
        KeyReused,
        LimitExceeded,
        Malformed,
        NotFound,
        ResultError,
        TaskFailed,
        TooLarge,
        Unauthenticated,
        Unavailable,
        Unreachable,
    )

__version__ = "0.1.0"

__all__ = [
    "App",
    "ArgumentError",
    "AsyncClient",
    "Cancelled",
    "Client",
    "ConfigError",
    "Conflict",
    "Context",
    "DulyError",
    "Forbidden",
    "GiveUp",
    "Handle",
    "Invalid",
    "KeyReused",
    "LimitExceeded",
    "Malformed",
    "Node",
    "NotFound",
    "Patience",
    "ResultError",
    "Retry",
    "Secret",
    "Task",
    "TaskFailed",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "as_completed",
    "as_completed_async",
    "context",
    "testing",
    "wait",
    "wait_async",
]

PUBLIC_MODULES = {
    "App": "duly.client.functions.app",
    "AsyncClient": "duly.client.aio",
    "Cancelled": "duly.client.functions.control",
    "Client": "duly.client.sync",
    "Context": "duly.client.functions.context",
    "GiveUp": "duly.client.functions.control",
    "Handle": "duly.client.functions.handle",
    "Node": "duly.client.functions.graph",
    "Patience": "duly.client.retry",
    "Retry": "duly.client.functions.control",
    "Secret": "duly.client.functions.parameters",
    "Task": "duly.client.functions.task",
    "as_completed": "duly.client.functions.waiting",
    "as_completed_async": "duly.client.functions.waiting",
    "context": "duly.client.functions.context",
    "wait": "duly.client.functions.waiting",
    "wait_async": "duly.client.functions.waiting",
}
"""Modules of the public names that are not errors."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import duly` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'duly' has no attribute {name!r}")
    from importlib import import_module

    if name == "testing":
        return import_module("duly.testing")
    value = getattr(import_module(PUBLIC_MODULES.get(name, "duly.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
