"""The flags of tasks and of resources, shared by several commands."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from typer import Option

ExpiresFlag = Annotated[
    str | None,
    Option(
        "--expires",
        "--expires-in",
        metavar="TIME",
        help="Lifetime, counted from now: 30m, 12h, 90d.",
    ),
]
"""One flag for everything that expires: keys, join tokens and reservations."""
MemoryFlag = Annotated[
    str | None, Option(metavar="SIZE", help="Memory, such as 512MiB or 2GiB; a bare number is MiB.")
]
DiskFlag = Annotated[
    str | None, Option(metavar="SIZE", help="Disk space, such as 10GiB; a bare number is MiB.")
]
IopsFlag = Annotated[int | None, Option(metavar="N", help="Disk I/O operations per second.")]
BandwidthFlag = Annotated[int | None, Option(metavar="MBIT", help="Network bandwidth in Mbit/s.")]
ExtraFlag = Annotated[
    list[str] | None, Option(metavar="KIND=N", help="Custom resources, such as gpu=1.")
]


@dataclass(frozen=True, kw_only=True)
class ResourceFlags:
    """The flags for amounts of resources; None means not given."""

    cpu: Annotated[float | None, Option(metavar="CPUS", help="CPUs, such as 0.5.")] = None
    memory: MemoryFlag = None
    disk: DiskFlag = None
    iops: IopsFlag = None
    bandwidth: BandwidthFlag = None
    ports: Annotated[int | None, Option(metavar="N", help="Number of TCP ports.")] = None
    extra: ExtraFlag = None


@dataclass(frozen=True, kw_only=True)
class TaskFlags:
    """The flags of a task; None means not given."""

    name: Annotated[str | None, Option(metavar="NAME", help="Name of the task, to find it by.")] = (
        None
    )
    tier: Annotated[
        str | None,
        Option(
            metavar="NAME", help="Resources by tier: basic, regular or premium. [default: basic]"
        ),
    ] = None
    cpu: Annotated[
        float | None, Option(metavar="CPUS", help="CPUs, such as 0.5; overrides the tier.")
    ] = None
    memory: MemoryFlag = None
    disk: DiskFlag = None
    iops: IopsFlag = None
    bandwidth: BandwidthFlag = None
    ports: Annotated[
        int | None,
        Option(metavar="N", help="Number of TCP ports, passed to the task in DULY_PORTS."),
    ] = None
    extra: ExtraFlag = None
    delay_tolerance: Annotated[
        str | None,
        Option(
            metavar="TIME",
            help="How long the start may be delayed: 30s, 5m, 2h. [default: by your plan]",
        ),
    ] = None
    category: Annotated[
        str | None,
        Option(metavar="NAME", help="Category of work, for which your plan has a delay tolerance."),
    ] = None
    execution_cap: Annotated[
        str | None,
        Option(
            "--execution-cap",
            "--cap",
            metavar="TIME",
            help="Longest run time of an attempt: 30s, 5m, 2h. [default: by your plan]",
        ),
    ] = None
    max_attempts: Annotated[
        int | None,
        Option(
            "--max-attempts",
            "--attempts",
            metavar="N",
            help="Most attempts, including the first. [default: 3; 1 for 'duly run']",
        ),
    ] = None
    retry_delay: Annotated[
        str | None,
        Option(metavar="TIME", help="Wait before the first retry; doubles with each one: 30s."),
    ] = None
    retry_max_delay: Annotated[
        str | None, Option(metavar="TIME", help="Longest wait before a retry: 10m.")
    ] = None
    no_retry_exit: Annotated[
        list[str] | None,
        Option(metavar="CODE,…", help="Exit codes after which it is not retried: 3,4."),
    ] = None
    on_lost: Annotated[
        Literal["retry", "fail"] | None,
        Option(help="What to do if its node is lost while it runs. [default: retry]"),
    ] = None
    on_overdue: Annotated[
        Literal["wait", "cancel"] | None,
        Option(help="What to do if it cannot start within its delay tolerance. [default: wait]"),
    ] = None
    run_at: Annotated[
        str | None,
        Option(
            "--run-at",
            "--at",
            metavar="TIME",
            help="Do not start before this time, such as 2027-01-31T06:30.",
        ),
    ] = None
    run_in: Annotated[
        str | None,
        Option("--in", metavar="TIME", help="Do not start before this much time has passed: 10m."),
    ] = None
    depends_on: Annotated[
        list[str] | None,
        Option(
            "--depends-on",
            "--after",
            metavar="ID,…",
            help="Tasks that must succeed first; ID:failure for one that must fail, ID:always for "
            "either.",
        ),
    ] = None
    idempotency_key: Annotated[
        str | None,
        Option(metavar="KEY", help="Submitting again with the same key returns the same task."),
    ] = None
    unique_key: Annotated[
        str | None,
        Option(metavar="KEY", help="Only one of your tasks that have not ended can have this key."),
    ] = None
    unique_while: Annotated[
        Literal["waiting", "live"] | None,
        Option(
            help="Hold the unique key until the task starts (waiting) or ends (live). "
            "[default: live]"
        ),
    ] = None
    on_conflict: Annotated[
        Literal["refuse", "return"] | None,
        Option(
            help="If the unique key is taken: refuse, or return the task that holds it. "
            "[default: refuse]"
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=VALUE", help="Environment variable; NAME alone copies its local value."
        ),
    ] = None
    env_file: Annotated[
        Path | None,
        Option(metavar="FILE", help="File of environment variables, one NAME=VALUE per line."),
    ] = None
    stdin: Annotated[
        str | None,
        Option(
            metavar="FILE|-",
            help="File for the task's standard input, at most 1 MiB; - sends your own.",
        ),
    ] = None
    label: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="A label, to find the task by.")
    ] = None
    require: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="A label that the node must have.")
    ] = None
    script: Annotated[
        Path | None, Option(metavar="FILE", help="Local script to upload and run.")
    ] = None
    bundle: Annotated[
        Path | None,
        Option(
            metavar="FOLDER|TAR", help="Local files to upload; the command runs in their folder."
        ),
    ] = None
    script_path: Annotated[
        str | None, Option(metavar="PATH", help="Script that already exists on the node.")
    ] = None
    priority: Annotated[
        int | None, Option(metavar="N", help="Higher runs first among your tasks. [default: 0]")
    ] = None
    queue: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="urgent: ahead of all others, if your plan allows it; off_peak: in quiet hours; "
            "or a queue of 'duly queue list'.",
        ),
    ] = None
    concurrency_key: Annotated[
        str | None,
        Option(metavar="KEY", help="Limit how many tasks with this key run at once."),
    ] = None
    concurrency_limit: Annotated[
        int | None,
        Option(metavar="N", help="How many tasks with the key run at once. [default: 1]"),
    ] = None
    uses: Annotated[
        list[str] | None,
        Option(metavar="KEY", help="Downstream that it calls, whose limits apply. Repeatable."),
    ] = None


def with_task_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of TaskFlags in place of its parameter `flags`."""
    return with_flags(TaskFlags, command)


def with_resource_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of ResourceFlags in place of its parameter `flags`."""
    return with_flags(ResourceFlags, command)


def with_flags(kind: type[Any], command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of the dataclass `kind` in place of its parameter `flags`."""
    hints = get_type_hints(kind, include_extras=True)
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.name != "flags"
    ]

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        flags = kind(**{option.name: values.pop(option.name) for option in options})
        command(flags=flags, **values)

    expanded.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    expanded.__annotations__ = {p.name: p.annotation for p in [*own, *options]}
    del expanded.__wrapped__
    return expanded
