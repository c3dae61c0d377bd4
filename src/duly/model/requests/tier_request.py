"""What may be said of a tier, and how it becomes the amounts that its name stands for."""

import msgspec

from duly.errors import Invalid
from duly.model.allowance import check_resources
from duly.model.amounts import ResourcesRequest, amounts_of
from duly.model.plan_names import check_name
from duly.model.resources import NOTHING, Resources
from duly.model.tenant import Plan

MOST_TIERS = 100
"""Of one tenant, or for everybody."""


class TierRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of POST /v1/tiers; for `everyone`, by an administrator alone."""

    name: str
    resources: ResourcesRequest
    everyone: bool = False


class TierChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of PATCH /v1/tiers/{id}: amounts, which change kind by kind."""

    resources: ResourcesRequest
    everyone: bool = False


def tier_from(
    name: str, asked: ResourcesRequest, base: Resources = NOTHING, *, plan: Plan | None
) -> Resources:
    """Return what `name` is to stand for; within `plan`, unless it is for everybody."""
    check_name(name)
    resources = amounts_of(asked, base)
    for kind, said in (("cpu_milli", "cpu"), ("memory_mb", "memory")):
        if not getattr(resources, kind):
            raise Invalid(f"resources.{said}", f"A tier has {said}; say how much, above 0.")
    if plan is None:
        return resources
    if plan.tiers is not None and name not in plan.tiers:
        raise Invalid(
            "name",
            f"The plan {plan.name!r} has only the tiers {', '.join(plan.tiers)}; "
            "what these stand for may be changed.",
        )
    check_resources(resources, plan, f"the tier {name!r}")
    return resources
