"""The request for a tier, and its conversion into the resources that its name stands for."""

import msgspec

from duly.errors import Invalid
from duly.model.requests.allowance import check_resources
from duly.model.requests.amounts import ResourcesRequest, apply_amounts
from duly.model.requests.plan_names import check_name
from duly.model.resources import NO_RESOURCES, Resources
from duly.model.tenant import Plan
from duly.model.wording import either

MAX_TIERS = 100
"""Of one tenant, or for everyone."""


class TierRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tiers; only an administrator may set `everyone`."""

    name: str
    resources: ResourcesRequest
    everyone: bool = False


class TierChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/tiers/{id}: resources, which change kind by kind."""

    resources: ResourcesRequest
    everyone: bool = False


def tier_from(
    name: str, asked: ResourcesRequest, base: Resources = NO_RESOURCES, *, plan: Plan | None
) -> Resources:
    """Return the resources of the tier `name`; within `plan`, unless it is for everyone."""
    check_name(name)
    resources = apply_amounts(asked, base)
    for kind, said in (("cpu_milli", "cpu"), ("memory_mb", "memory")):
        if not getattr(resources, kind):
            raise Invalid(f"resources.{said}", "it is missing. Give an amount above 0.")
    if plan is None:
        return resources
    if plan.tiers is not None and name not in plan.tiers:
        raise Invalid(
            "name",
            f"the plan {plan.name!r} does not include a tier {name!r}. Redefine "
            f"{either(plan.tiers)} instead.",
        )
    check_resources(resources, plan, f"the tier {name!r}")
    return resources
