"""The flags that say what a plan grants, and how they become the fields of a request.

A flag that is not given says nothing. The word `none` takes a limit away.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from typer import BadParameter, Option

from duly.cli.flags import with_flags
from duly.cli.request import duration, pairs
from duly.client.plan_shapes import PlanFields

NONE = "none"


@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """What was said of a plan on the command line; None is what was not said."""

    tasks_per_hour: Annotated[
        str | None,
        Option(metavar="N", help="Tasks that may be submitted in an hour, with --burst."),
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
            metavar="KIND=AMOUNT,…", help="What they may have at once: cpu=50,memory=100GiB,gpu=2."
        ),
    ] = None
    max_waiting: Annotated[
        str | None, Option(metavar="N", help="Tasks that may wait for their start.")
    ] = None
    max_schedules: Annotated[str | None, Option(metavar="N", help="Schedules.")] = None
    tiers: Annotated[
        str | None, Option(metavar="NAME,…", help="The tiers that a task may name.")
    ] = None
    queues: Annotated[
        str | None,
        Option(metavar="NAME,…", help="The queues that a task may ask for: urgent, off_peak."),
    ] = None
    delay_tolerance: Annotated[
        str | None, Option(metavar="TIME", help="For tasks that do not say it: 5m.")
    ] = None
    max_delay_tolerance: Annotated[
        str | None, Option(metavar="TIME", help="The longest that a task may say.")
    ] = None
    tolerances: Annotated[
        str | None,
        Option(metavar="NAME=TIME,…", help="By category, all of them: mail=30s,report=2h."),
    ] = None
    execution_cap: Annotated[
        str | None, Option(metavar="TIME", help="For tasks that do not say it: 24h.")
    ] = None
    max_execution_cap: Annotated[
        str | None, Option(metavar="TIME", help="The longest that a task may say.")
    ] = None
    weight: Annotated[
        str | None, Option(metavar="N", help="Its share beside other tenants, 1 to 1000.")
    ] = None
    retention: Annotated[
        str | None, Option(metavar="TIME", help="How long what has ended is kept: 7d.")
    ] = None
    max_log_bytes: Annotated[str | None, Option(metavar="N", help="The log of an attempt.")] = None
    max_result_bytes: Annotated[str | None, Option(metavar="N", help="A result.")] = None
    max_artifact_bytes: Annotated[str | None, Option(metavar="N", help="An artifact.")] = None
    artifact_bytes: Annotated[
        str | None, Option(metavar="N", help="All artifacts of a tenant together.")
    ] = None
    cpu_quota: Annotated[
        bool | None,
        Option(
            "--cpu-quota/--no-cpu-quota",
            help="Give tasks no more cpu than they asked for, even where processors are idle.",
        ),
    ] = None
    price_class: Annotated[str | None, Option(metavar="NAME", help="Its name in bills.")] = None
    price_per_task: Annotated[str | None, Option(metavar="PRICE", help="What a task costs.")] = None
    price_per_cpu_hour: Annotated[
        str | None, Option(metavar="PRICE", help="What an hour of a core costs.")
    ] = None
    price_per_gib_hour: Annotated[
        str | None, Option(metavar="PRICE", help="What an hour of a GiB of memory costs.")
    ] = None


def with_plan_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of PlanFlags in place of its parameter `flags`."""
    return with_flags(PlanFlags, command)


def plan_fields(flags: PlanFlags) -> PlanFields:
    """Return the request that `flags` ask for, without what was not said."""
    fields: dict[str, Any] = {}
    for name in PlanFlags.__dataclass_fields__:
        said: str | bool | None = getattr(flags, name)
        if isinstance(said, str):
            flag = "--" + name.replace("_", "-")
            fields[name] = None if said.strip() == NONE else _read(name, flag, said)
        elif said is not None:
            fields[name] = said
    return fields  # type: ignore[return-value] # the flags have the names of the fields


def _read(name: str, flag: str, text: str) -> Any:
    if name == "price_class":
        return text
    if name in ("tiers", "queues"):
        return _parts(text)
    if name == "tolerances":
        said = pairs(flag, _parts(text))
        return {category: duration(flag, time) for category, time in said.items()}
    if name == "max_resources":
        return _amounts(flag, text)
    if name.endswith(("_tolerance", "_cap")) or name == "retention":
        return duration(flag, text)
    kind = float if name.startswith("price") else int
    return _number(flag, text, kind)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _amounts(flag: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, amount in pairs(flag, _parts(text)).items():
        if kind == "cpu":
            found["cpu"] = _number(flag, amount, float)
        elif kind in ("memory", "disk"):
            found |= {f"{kind}_mb": int(amount)} if amount.isdecimal() else {kind: amount}
        elif kind in ("iops", "ports", "bandwidth"):
            found["bandwidth_mbps" if kind == "bandwidth" else kind] = _number(flag, amount, int)
        else:
            found.setdefault("extra", {})[kind] = _number(flag, amount, int)
    return found


def _number(flag: str, text: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        whole = "a whole number" if kind is int else "a number"
        raise BadParameter(
            f"Write {whole}, or none for no limit, not {text[:40]!r}.", param_hint=flag
        ) from None
