"""The options of a task, and how they become fields of a request."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Union

from duly.client.functions.control import seconds_of
from duly.client.functions.encoding.converter import ResultReference
from duly.client.shapes.task_shapes import (
    Concurrency,
    DependencyFields,
    Duration,
    Instant,
    ResourceFields,
    UniqueFields,
)
from duly.errors import ConfigError, Invalid

if TYPE_CHECKING:
    from typing import Literal

Upstream = Union[str, "ResultReference", DependencyFields, Mapping[str, Any]]
"""A task to wait for: an id, a handle, a node, or one of them with the condition on its end."""


class TaskOptions(TypedDict, total=False):
    """How a function runs as a task: the fields of a task, and two of functions.

    `backoff` is the delay before the first retry, or a pair with the longest delay. `unique` is a
    key, or a template of one with the names of arguments: "encode:{path}".
    """

    tier: str | None
    resources: ResourceFields | None
    delay_tolerance: Duration | None
    execution_cap: Duration | None
    max_attempts: int | None
    backoff: Duration | tuple[Duration, Duration] | None
    on_lost: "Literal['retry', 'fail'] | None"
    on_overdue: "Literal['wait', 'cancel'] | None"
    run_at: Instant | None
    idempotency_key: str | None
    labels: Mapping[str, str] | None
    requires: Mapping[str, str] | None
    category: str | None
    priority: int | None
    queue: str | None
    concurrency: Concurrency | None
    unique: str | UniqueFields | None
    uses: Sequence[str] | None
    depends_on: Sequence[Upstream] | None


KNOWN_OPTIONS = frozenset(TaskOptions.__annotations__)


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that does not exist."""
    for name in options:
        if name not in KNOWN_OPTIONS:
            known = ", ".join(sorted(KNOWN_OPTIONS))
            raise ConfigError(f"{name!r} is no option of a task. There are {known}.")


def task_fields(
    options: Mapping[str, Any], arguments: Mapping[str, Any], upstreams: Sequence[str]
) -> dict[str, Any]:
    """Return the fields of a request; `arguments` fill in the template of a unique key."""
    fields = {name: value for name, value in options.items() if value is not None}
    if (backoff := fields.pop("backoff", None)) is not None:
        fields["retry"] = _retry(backoff)
    if (unique := fields.get("unique")) is not None:
        fields["unique"] = _unique(unique, arguments)
    dependencies = [_dependency(upstream) for upstream in fields.pop("depends_on", ())]
    named = {d if isinstance(d, str) else d["task"] for d in dependencies}
    dependencies += [upstream for upstream in upstreams if upstream not in named]
    if dependencies:
        fields["depends_on"] = dependencies
    return fields


def _retry(backoff: Any) -> dict[str, float]:
    first, longest = backoff if isinstance(backoff, tuple) else (backoff, None)
    if longest is None:
        return {"delay": seconds_of(first)}
    return {"delay": seconds_of(first), "max_delay": seconds_of(longest)}


def _unique(unique: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"key": unique} if isinstance(unique, str) else dict(unique)
    try:
        fields["key"] = fields["key"].format_map(arguments)
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise Invalid(
            "unique",
            f"{fields['key']!r} is no template with names of arguments: {error}.",
        ) from None
    return fields


def _dependency(upstream: Upstream) -> Any:
    if isinstance(upstream, ResultReference):
        return upstream.reference().task
    if isinstance(upstream, Mapping):
        return {**upstream, "task": _dependency(upstream["task"])}
    return upstream
