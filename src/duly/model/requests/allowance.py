"""Applies a plan to a request: its default to a missing value, its bound to a given one.

Pure functions of the plan and one requested value. Every refusal names the field, the bound and the
plan that sets it, so that the client knows what to request instead.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from duly.duration import format_duration, parse_duration
from duly.errors import Invalid
from duly.model.queues.queue import REQUESTABLE, Queue
from duly.model.resources import (
    KINDS,
    NO_RESOURCES,
    TIERS,
    Resources,
    format_amount,
    format_bare_amount,
)
from duly.model.task import TaskSpec
from duly.model.tenant import Plan
from duly.model.wording import either

DEFAULT_DELAY_TOLERANCE = timedelta(minutes=5)
DEFAULT_OFF_PEAK_TOLERANCE = timedelta(hours=12)
"""The default of a task that requests `off_peak`: every half day has a quiet hour."""
DEFAULT_EXECUTION_CAP = timedelta(hours=24)
DEFAULT_TIER = "basic"
"""The tier of a task that names none, if the plan includes it."""
SHORT_NAMES = {"cpu_milli": "cpu", "memory_mb": "memory", "disk_mb": "disk"}


def execution_cap(asked: float | str | None, plan: Plan) -> timedelta:
    """Return how long an attempt may run."""
    if asked is None:
        return min(plan.execution_cap, plan.max_execution_cap)
    cap = parse_duration(asked, "execution_cap")
    if cap <= timedelta(0):
        raise Invalid("execution_cap", "it must be more than 0.")
    if cap > plan.max_execution_cap:
        raise _too_long("execution_cap", cap, plan.max_execution_cap, plan)
    return cap


def delay_tolerance(
    asked: float | str | None, category: str | None, plan: Plan, queue: str | None = None
) -> timedelta:
    """Return how long the start may be delayed: as requested, by category, or by default."""
    default = plan.delay_tolerance
    if is_off_peak(queue, plan):
        default = max(default, DEFAULT_OFF_PEAK_TOLERANCE)
    if category is not None:
        if category not in plan.tolerances:
            raise _unknown_category(category, plan)
        default = timedelta(seconds=plan.tolerances[category])
    longest = plan.max_delay_tolerance
    if asked is None:
        return default if longest is None else min(default, longest)
    tolerance = parse_duration(asked, "delay_tolerance")
    if longest is not None and tolerance > longest:
        raise _too_long("delay_tolerance", tolerance, longest, plan)
    return tolerance


def queue(asked: str, plan: Plan) -> str:
    """Return the requested queue; raises Invalid if it does not exist or the plan excludes it."""
    existing = requestable_queues(plan)
    if asked not in existing:
        raise Invalid(
            "queue",
            f"{asked[:40]!r} is not a queue that tasks can ask for. Use {either(existing)}, or "
            "leave it out.",
        )
    if plan.queues is None or asked in plan.queues:
        return asked
    included = [name for name in plan.queues if name in existing]
    allowed = f"Use {either(included)}, or leave it out." if included else "Leave it out."
    raise Invalid(
        "queue", f"the plan {plan.name!r} does not include the queue {asked!r}. {allowed}"
    )


def requestable_queues(plan: Plan) -> list[str]:
    """Return the queues that a task could request, whether the plan includes them or not."""
    return [*REQUESTABLE, *sorted(plan.known_queues)]


def is_off_peak(queue: str | None, plan: Plan) -> bool:
    """Return True if tasks of a queue wait for low load."""
    return queue == Queue.OFF_PEAK or (queue is not None and plan.known_queues.get(queue, False))


def tier(asked: str | None, plan: Plan) -> str:
    """Return the requested tier; by default `basic`, or else the first that the plan includes."""
    # The common case: almost every task of almost every plan.
    if plan.tiers is None and (asked or DEFAULT_TIER) in plan.known_tiers:
        return asked or DEFAULT_TIER
    allowed = allowed_tiers(plan)
    if not allowed:
        raise Invalid(
            "tier",
            f"the plan {plan.name!r} includes no tier that exists. An administrator can change its "
            "tiers.",
        )
    if asked is None:
        return DEFAULT_TIER if DEFAULT_TIER in allowed else allowed[0]
    if asked in allowed:
        return asked
    if asked in plan.known_tiers:
        raise Invalid(
            "tier",
            f"the plan {plan.name!r} does not include the tier {asked!r}. Use {either(allowed)}.",
        )
    raise Invalid("tier", f"there is no tier {asked[:60]!r}. Use {either(allowed)}.")


def allowed_tiers(plan: Plan) -> list[str]:
    """Return the names of the existing tiers that the plan includes."""
    if plan.tiers is None:
        return list(plan.known_tiers)
    return [name for name in plan.tiers if name in plan.known_tiers]


def check_resources(resources: Resources, plan: Plan, what: str = "the task") -> None:
    """Refuse resources that could never run, because the plan grants less at once."""
    for kind, most in (plan.max_resources or {}).items():
        amount = getattr(resources, kind) if kind in KINDS else resources.extra.get(kind, 0)
        if amount > most:
            name = SHORT_NAMES.get(kind, kind if kind in KINDS else f"extra.{kind}")
            raise Invalid(
                f"resources.{name}",
                f"{what} asks for {format_amount(kind, amount)}; the plan {plan.name!r} grants at "
                f"most {format_bare_amount(kind, most)} at once.",
            )


def keep_granted(plan: Plan, spec: TaskSpec, changed: Collection[str]) -> Plan:
    """Return `plan`, widened to what `spec` was granted in all fields that are not `changed`.

    The plan may have shrunk since. A task keeps what it was granted; the current plan bounds only
    what is requested now.
    """
    wide = replace(
        keep_names(plan, spec),
        max_log_bytes=spec.payload.log_limit,
        max_result_bytes=spec.payload.result_limit,
        cpu_quota=spec.payload.cpu_quota,
    )
    # A name that is given anew must exist.
    if "category" in changed:
        wide = replace(wide, tolerances=plan.tolerances)
    if "tier" in changed:
        wide = replace(wide, known_tiers=plan.known_tiers)
    if "execution_cap" not in changed:
        cap = max(plan.max_execution_cap, spec.execution_cap)
        wide = replace(wide, max_execution_cap=cap)
    if plan.max_delay_tolerance is not None and not {"delay_tolerance", "category"} & set(changed):
        longest = max(plan.max_delay_tolerance, spec.delay_tolerance)
        wide = replace(wide, max_delay_tolerance=longest)
    if "queue" not in changed and spec.queue is not None and plan.queues is not None:
        wide = replace(wide, queues=(*plan.queues, spec.queue))
    if "tier" not in changed and spec.tier is not None and plan.tiers is not None:
        wide = replace(wide, tiers=(*plan.tiers, spec.tier))
    if not {"tier", "resources"} & set(changed):
        wide = replace(wide, max_resources=None)
    return wide


def keep_names(plan: Plan, spec: TaskSpec) -> Plan:
    """Return `plan` with the tier and category of `spec`, which may have been removed since."""
    tiers, tolerances, category = plan.known_tiers, plan.tolerances, spec.payload.category
    if spec.tier is not None and spec.tier not in tiers:
        tiers = {**tiers, spec.tier: spec.resources}
    if category is not None and category not in tolerances:
        tolerances = {**tolerances, category: plan.delay_tolerance.total_seconds()}
    return replace(plan, known_tiers=tiers, tolerances=tolerances)


def without_plan_defaults(spec: TaskSpec, plan: Plan) -> dict[str, Any]:
    """Return the fields that `spec` has from its plan, with the values of a plan without limits.

    With them, `spec` can be compared with a task submitted before the plan was changed.
    """
    category = spec.payload.category
    default = tier(None, plan) if allowed_tiers(plan) else DEFAULT_TIER
    same: dict[str, Any] = {}
    if spec.execution_cap == execution_cap(None, plan):
        same["execution_cap"] = DEFAULT_EXECUTION_CAP
    known = category is None or category in plan.tolerances
    if known and spec.delay_tolerance == delay_tolerance(None, category, plan, spec.queue):
        same["delay_tolerance"] = DEFAULT_DELAY_TOLERANCE
    named = spec.tier or default
    if spec.resources == plan.known_tiers.get(named):
        same["resources"] = TIERS.get(DEFAULT_TIER if named == default else named, NO_RESOURCES)
    if spec.tier == default:
        same["tier"] = DEFAULT_TIER
    return same


def _too_long(field: str, asked: timedelta, longest: timedelta, plan: Plan) -> Invalid:
    shown, bound = format_duration(asked), format_duration(longest)
    if shown == bound:
        # They differ by less than is shown of long durations.
        shown, bound = (f"{duration.total_seconds():.12g} s" for duration in (asked, longest))
    return Invalid(field, f"{shown} is more than the {bound} that the plan {plan.name!r} allows.")


def _unknown_category(category: str, plan: Plan) -> Invalid:
    problem = f"the plan {plan.name!r} has no categories. Leave it out."
    if plan.tolerances:
        use = either(sorted(plan.tolerances))
        problem = f"the plan {plan.name!r} has no category {category[:60]!r}. Use {use}."
    return Invalid("category", problem)
