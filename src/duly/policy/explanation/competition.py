"""Explains why a task waits for those of other tenants, or of other users of its tenant."""

import msgspec

from duly.model.task import Reason


class Competition(msgspec.Struct, frozen=True):
    """How the tenant or user of a waiting task stands against others with waiting tasks."""

    share: float
    """The dominant share of the task's pool that it holds, from 0 to 1."""
    fair_share: float
    is_entitled: bool
    """Whether the share stays within the fair share with the task."""
    entitled_others: int
    """Other tenants or users that are entitled to a task of theirs, which goes first."""

    @property
    def puts_others_first(self) -> bool:
        """Return True if others are entitled to a task, and this one is not."""
        return self.entitled_others > 0 and not self.is_entitled


def beyond_fair_share(
    competition: Competition, ahead: int | None, *, sharer: str = "tenant"
) -> Reason:
    """Return the reason for a task whose `sharer` has its fair share already, while others do not.

    `ahead` is how many tasks of the same tenant go before it, if that is known.
    """
    share, fair_share = competition.share, competition.fair_share
    others = competition.entitled_others
    first = (
        f"1 {sharer} below its share goes first"
        if others == 1
        else f"{others} {sharer}s below their share go first"
    )
    behind = ""
    if ahead:
        tasks = "1 task is" if ahead == 1 else f"{ahead} tasks are"
        behind = f"; {tasks} ahead in its own queue"
    return Reason(
        "not_its_turn",
        f"Its {sharer} uses {100 * share:.0f} % of the fleet; its fair share is "
        f"{100 * fair_share:.0f} %. {first}{behind}.",
        {
            "share": round(share, 4),
            "fair_share": round(fair_share, 4),
            f"{sharer}s_first": others,
            "ahead": ahead,
        },
    )
