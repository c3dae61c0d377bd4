"""Explains why a task waits for those of other tenants."""

import msgspec

from duly.model.task import Reason


class Competition(msgspec.Struct, frozen=True):
    """How the tenant of a waiting task stands against the others with waiting tasks."""

    share: float
    """The dominant share of the task's pool that the tenant holds, from 0 to 1."""
    fair_share: float
    is_entitled: bool
    """Whether the share stays within the fair share with the task."""
    entitled_tenants: int
    """Other tenants that are entitled to a task of theirs, which goes first."""


def beyond_fair_share(competition: Competition, ahead: int | None) -> Reason:
    """Return the reason for a task whose tenant has its fair share already, while others do not.

    `ahead` is how many tasks of the same tenant go before it, if that is known.
    """
    share, fair_share = competition.share, competition.fair_share
    others = competition.entitled_tenants
    first = (
        "1 tenant below its share goes first"
        if others == 1
        else f"{others} tenants below their share go first"
    )
    behind = ""
    if ahead:
        tasks = "1 task is" if ahead == 1 else f"{ahead} tasks are"
        behind = f"; {tasks} ahead in its own queue"
    return Reason(
        "not_its_turn",
        f"Its tenant uses {100 * share:.0f} % of the fleet; its fair share is "
        f"{100 * fair_share:.0f} %. {first}{behind}.",
        {
            "share": round(share, 4),
            "fair_share": round(fair_share, 4),
            "tenants_first": others,
            "ahead": ahead,
        },
    )
