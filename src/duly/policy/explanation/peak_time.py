"""Explains why a task waits at peak time: it is postponed, or only the headroom is free."""

from collections.abc import Sequence

from duly.duration import format_duration
from duly.model.node import Offer
from duly.model.queues.queue import Queue
from duly.model.requests.allowance import SHORT_NAMES
from duly.model.shape import Shape
from duly.model.task import Reason
from duly.policy import placement
from duly.policy.budget.headroom import SLOT, keep, slots_to_keep, withhold
from duly.policy.budget.peak import Load
from duly.policy.explanation.facts import Facts
from duly.policy.explanation.timestamps import timestamp


def explain_postponement(facts: Facts) -> Reason | None:
    """Return the reason of a task that waits for the end of peak time, None if it does not."""
    kinds = {kind for kind, amount in facts.needs.items() if amount > 0} & facts.peak.since.keys()
    if (end := facts.postponed_until) is None or not kinds:
        return None
    at_peak = [share for share in Load(facts.offers).shares if share.kind in kinds]
    if not at_peak:
        return None
    share = max(at_peak, key=lambda share: share.percent)
    kind, used = SHORT_NAMES.get(share.kind, share.kind), int(share.percent)
    scheduling = facts.scheduling
    since, until = timestamp(facts.peak.since[share.kind]), timestamp(end)
    whom = "off_peak tasks"
    if not facts.is_off_peak:
        whom = f"tasks with more than {format_duration(scheduling.postpone_slack)} of slack"
    return Reason(
        "off_peak" if facts.is_off_peak else "postponed",
        f"It has been peak time since {since}: {used} % of the "
        f"{'CPU' if kind == 'cpu' else kind} of all nodes is in use; {whom} wait until it is "
        f"{scheduling.off_peak_percent} % or less, or until {until}.",
        {
            "kind": kind,
            "used_percent": used,
            "peak_percent": scheduling.peak_percent,
            "off_peak_percent": scheduling.off_peak_percent,
            "since": since,
            "until": until,
        },
    )


def explain_headroom(facts: Facts, shape: Shape, offers: Sequence[Offer]) -> Reason | None:
    """Return the reason of a task for which there is room, all of it kept for urgent tasks.

    `offers` are those of the nodes that could run it. None if it may start there.
    """
    since = facts.peak.since_for(SLOT)
    competition = facts.competition
    is_entitled = competition is None or competition.is_entitled
    if since is None or (facts.queue == Queue.URGENT and is_entitled):
        return None
    kept = keep(facts.offers, slots_to_keep(facts.offers, facts.scheduling.urgent_headroom))
    usable = withhold(offers, kept)
    if any(placement.fits(shape, offer) for offer in usable) or not any(
        placement.could_fit(shape, offer) for offer in usable
    ):
        return None
    percent = facts.scheduling.urgent_headroom
    or_when = ""
    if facts.queue != Queue.URGENT:
        urgent_slack = format_duration(facts.scheduling.urgent_slack)
        or_when = f", or when it must start within {urgent_slack}"
    return Reason(
        "headroom",
        f"It has been peak time since {timestamp(since)}, and the room that is left, {percent} % "
        "of the fleet, is kept for urgent tasks of tenants below their fair share. It starts when "
        f"other tasks end{or_when}.",
        {"since": timestamp(since), "headroom_percent": percent},
    )
