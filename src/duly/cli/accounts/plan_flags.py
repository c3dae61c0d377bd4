"""The flags that define a plan, and their conversion to the fields of a request.

A flag that is not given leaves the field alone. The value `none` removes a limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from typer import BadParameter, Option

from duly.cli.tasks.flags import with_flags
from duly.cli.tasks.submission.request import parse_pairs, parse_seconds
from duly.client.shapes.plan_shapes import PlanFields

NO_LIMIT = "none"


@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """The flags of a plan; None means not given."""

    tasks_per_hour: Annotated[
        str | None,
        Option(metavar="N", help="Tasks that may be submitted per hour; needs --burst."),
    ] = None
    burst: Annotated[
        str | None, Option(metavar="N", help="Tasks that may be submitted at once.")
    ] = None
    max_running: Annotated[str | None, Option(metavar="N", help="Tasks that may run at once.")] = (
        None
    )
    max_resources: Annotated[
        str | None,
        Option(
            metavar="KIND=AMOUNT,…",
            help="Resources that may be in use at once: cpu=50,memory=100GiB,gpu=2.",
        ),
    ] = None
    max_waiting: Annotated[str | None, Option(metavar="N", help="Tasks that may wait.")] = None
    max_schedules: Annotated[str | None, Option(metavar="N", help="Schedules that may exist.")] = (
        None
    )
    tiers: Annotated[str | None, Option(metavar="NAME,…", help="Tiers that tasks may use.")] = None
    queues: Annotated[
        str | None,
        Option(
            metavar="NAME,…", help="Queues that tasks may request: urgent, off_peak and your own."
        ),
    ] = None
    delay_tolerance: Annotated[
        str | None, Option(metavar="TIME", help="Default delay tolerance: 5m.")
    ] = None
    max_delay_tolerance: Annotated[
        str | None, Option(metavar="TIME", help="Longest delay tolerance of a task.")
    ] = None
    tolerances: Annotated[
        str | None,
        Option(
            metavar="NAME=TIME,…",
            help="Delay tolerances by category, all at once: mail=30s,report=2h.",
        ),
    ] = None
    execution_cap: Annotated[
        str | None, Option(metavar="TIME", help="Default execution cap: 24h.")
    ] = None
    max_execution_cap: Annotated[
        str | None, Option(metavar="TIME", help="Longest execution cap of a task.")
    ] = None
    weight: Annotated[
        str | None, Option(metavar="N", help="Weight in the fair share between tenants, 1 to 1000.")
    ] = None
    retention: Annotated[
        str | None, Option(metavar="TIME", help="How long ended tasks are kept: 7d.")
    ] = None
    max_log_bytes: Annotated[
        str | None, Option(metavar="N", help="Largest log of an attempt, in bytes.")
    ] = None
    max_result_bytes: Annotated[
        str | None, Option(metavar="N", help="Largest result, in bytes.")
    ] = None
    max_artifact_bytes: Annotated[
        str | None, Option(metavar="N", help="Largest artifact, in bytes.")
    ] = None
    artifact_bytes: Annotated[
        str | None, Option(metavar="N", help="Total size of a tenant's artifacts, in bytes.")
    ] = None
    cpu_quota: Annotated[
        bool | None,
        Option(
            "--cpu-quota/--no-cpu-quota",
            help="Limit tasks to the CPUs that they asked for, even if others are idle.",
        ),
    ] = None
    price_class: Annotated[
        str | None, Option(metavar="NAME", help="Name of the price class in bills.")
    ] = None
    price_per_task: Annotated[str | None, Option(metavar="PRICE", help="Price of a task.")] = None
    price_per_cpu_hour: Annotated[
        str | None, Option(metavar="PRICE", help="Price of a CPU for an hour.")
    ] = None
    price_per_gib_hour: Annotated[
        str | None, Option(metavar="PRICE", help="Price of a GiB of memory for an hour.")
    ] = None


def with_plan_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of PlanFlags in place of its parameter `flags`."""
    return with_flags(PlanFlags, command)


def plan_fields(flags: PlanFlags) -> PlanFields:
    """Return the fields of the request for the flags that were given."""
    fields: dict[str, Any] = {}
    for name in PlanFlags.__dataclass_fields__:
        value: str | bool | None = getattr(flags, name)
        if isinstance(value, str):
            flag = "--" + name.replace("_", "-")
            fields[name] = None if value.strip() == NO_LIMIT else _parse_field(name, flag, value)
        elif value is not None:
            fields[name] = value
    return fields  # type: ignore[return-value] # the flags have the names of the fields


def _parse_field(name: str, flag: str, text: str) -> Any:
    if name == "price_class":
        return text
    if name in ("tiers", "queues"):
        return _split_list(text)
    if name == "tolerances":
        value = parse_pairs(flag, _split_list(text))
        return {category: parse_seconds(flag, time) for category, time in value.items()}
    if name == "max_resources":
        return _parse_amounts(flag, text)
    if name.endswith(("_tolerance", "_cap")) or name == "retention":
        return parse_seconds(flag, text)
    kind = float if name.startswith("price") else int
    return _parse_number(flag, text, kind)


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_amounts(flag: str, text: str) -> dict[str, Any]:
    amounts: dict[str, Any] = {}
    for kind, amount in parse_pairs(flag, _split_list(text)).items():
        if kind == "cpu":
            amounts["cpu"] = _parse_number(flag, amount, float)
        elif kind in ("memory", "disk"):
            amounts |= {f"{kind}_mb": int(amount)} if amount.isdecimal() else {kind: amount}
        elif kind in ("iops", "ports", "bandwidth"):
            amounts["bandwidth_mbps" if kind == "bandwidth" else kind] = _parse_number(
                flag, amount, int
            )
        else:
            amounts.setdefault("extra", {})[kind] = _parse_number(flag, amount, int)
    return amounts


def _parse_number(flag: str, text: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        whole = "a whole number" if kind is int else "a number"
        raise BadParameter(
            f"{text[:40]!r} is not {whole}. Write one, or none for no limit.", param_hint=flag
        ) from None
