"""The flags that several commands share: what describes a task, and amounts of resources."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from typer import Option

MemoryFlag = Annotated[
    str | None, Option(metavar="SIZE", help="Such as 512MiB or 2GiB; a bare number is MiB.")
]
DiskFlag = Annotated[str | None, Option(metavar="SIZE", help="Disk space, written as memory is.")]
IopsFlag = Annotated[int | None, Option(metavar="N", help="Disk accesses per second.")]
BandwidthFlag = Annotated[int | None, Option(metavar="MBIT", help="Network, in Mbit/s.")]
ExtraFlag = Annotated[
    list[str] | None, Option(metavar="KIND=N", help="Other resources, such as gpu=1.")
]


@dataclass(frozen=True, kw_only=True)
class ResourceFlags:
    """Amounts that were said on the command line; None is what was not said."""

    cpu: Annotated[float | None, Option(metavar="CORES", help="Cores, such as 0.5.")] = None
    memory: MemoryFlag = None
    disk: DiskFlag = None
    iops: IopsFlag = None
    bandwidth: BandwidthFlag = None
    ports: Annotated[int | None, Option(metavar="N", help="How many TCP ports.")] = None
    extra: ExtraFlag = None


@dataclass(frozen=True, kw_only=True)
class TaskFlags:
    """What was said of a task on the command line; None is what was not said."""

    name: Annotated[str | None, Option(help="A name to find it by.")] = None
    tier: Annotated[
        str | None, Option(help="How much it gets: basic (the default), regular or premium.")
    ] = None
    cpu: Annotated[
        float | None, Option(metavar="CORES", help="Cores, such as 0.5; replaces the tier's.")
    ] = None
    memory: MemoryFlag = None
    disk: DiskFlag = None
    iops: IopsFlag = None
    bandwidth: BandwidthFlag = None
    ports: Annotated[
        int | None,
        Option(metavar="N", help="How many TCP ports; the task finds them in DULY_PORTS."),
    ] = None
    extra: ExtraFlag = None
    delay_tolerance: Annotated[
        str | None, Option(metavar="TIME", help="How long its start may be put off: 30s, 5m, 2h.")
    ] = None
    category: Annotated[
        str | None, Option(help="What kind of work it is: picks your plan's tolerance for it.")
    ] = None
    execution_cap: Annotated[
        str | None,
        Option("--execution-cap", "--cap", metavar="TIME", help="When it is stopped: 30s, 5m, 2h."),
    ] = None
    max_attempts: Annotated[
        int | None,
        Option("--max-attempts", "--attempts", metavar="N", help="The first attempt and retries."),
    ] = None
    on_lost: Annotated[
        Literal["retry", "fail"] | None, Option(help="What to do if its node is lost meanwhile.")
    ] = None
    run_at: Annotated[
        str | None,
        Option("--run-at", "--at", metavar="TIME", help="Not before, such as 2027-01-31T06:30."),
    ] = None
    run_in: Annotated[
        str | None, Option("--in", metavar="TIME", help="Not before that much time: 10m.")
    ] = None
    depends_on: Annotated[
        list[str] | None,
        Option(
            "--depends-on",
            "--after",
            metavar="ID,…",
            help="Tasks that must succeed first; ID:failure or ID:always for other ends.",
        ),
    ] = None
    idempotency_key: Annotated[
        str | None,
        Option(metavar="KEY", help="Submitted again with this key, it is the same task."),
    ] = None
    unique_key: Annotated[
        str | None, Option(metavar="KEY", help="Only one of your live tasks may have this key.")
    ] = None
    unique_while: Annotated[
        Literal["waiting", "live"] | None,
        Option(help="Until when it keeps its unique key: until it starts, or (live) has ended."),
    ] = None
    on_conflict: Annotated[
        Literal["refuse", "return"] | None,
        Option(help="If the unique key is taken: refuse, or give the task that has it."),
    ] = None
    env: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="A variable; NAME alone takes the value from here."),
    ] = None
    env_file: Annotated[
        Path | None, Option(metavar="FILE", help="A file with a NAME=VALUE on each line.")
    ] = None
    label: Annotated[list[str] | None, Option(metavar="NAME=VALUE", help="To find it by.")] = None
    require: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="A label that its node must have.")
    ] = None
    script: Annotated[
        Path | None, Option(metavar="FILE", help="A script from here to be run, sent along.")
    ] = None
    bundle: Annotated[
        Path | None,
        Option(
            metavar="FOLDER|TAR", help="Files from here, sent along: the command is run in them."
        ),
    ] = None
    script_path: Annotated[
        str | None, Option(metavar="PATH", help="A script that is on the node already.")
    ] = None
    priority: Annotated[
        int | None, Option(metavar="N", help="Higher goes first among your tasks; 0 if not said.")
    ] = None
    queue: Annotated[
        Literal["urgent", "off_peak"] | None,
        Option(help="Before all others, if your plan allows it; or in quiet hours, for less."),
    ] = None
    concurrency_key: Annotated[
        str | None,
        Option(metavar="KEY", help="Of tasks with this key, only so many run at once."),
    ] = None
    concurrency_limit: Annotated[
        int | None, Option(metavar="N", help="How many run at once under the key; 1 if not said.")
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
