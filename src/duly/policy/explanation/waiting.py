"""Explains why a task that is ready to run waits."""

from collections.abc import Collection, Sequence

from duly.model.node import Offer
from duly.model.resources import field_amount, field_name, format_amount, format_bare_amount
from duly.model.task import Reason
from duly.model.wording import count_of, either
from duly.policy.budget.limits import RUNNING, BlockingLimit, blocking_limit
from duly.policy.explanation.absent_nodes import explain_absence
from duly.policy.explanation.competition import beyond_fair_share
from duly.policy.explanation.downstreams import at_rate, closed_downstream
from duly.policy.explanation.facts import Facts
from duly.policy.explanation.no_fitting_node import no_node_fits
from duly.policy.explanation.peak_time import explain_headroom, explain_postponement
from duly.policy.explanation.queue_limits import queue_full, queue_shut
from duly.policy.explanation.wait_position import add_next_end
from duly.policy.explanation.workers import no_worker, workers_busy

SUSPENDED = "Its tenant is suspended, so none of its tasks start. An administrator can resume it."


def explain_waiting(facts: Facts) -> Reason:
    """Return the one reason why a waiting task does not run yet."""
    shape = facts.shape
    barred = limit_in_the_way(facts)
    if facts.limits.is_suspended:
        return Reason("tenant_suspended", SUSPENDED)
    if (shut := queue_shut(facts)) is not None:
        return shut
    large_enough = [
        offer
        for offer in facts.offers
        if shape.suits(offer) and not offer.capacity.shortage(facts.needs)
    ]
    if not large_enough and shape.function is not None:
        return no_worker(shape.function, facts.offers)
    if not large_enough:
        agents = [offer for offer in facts.offers if offer.worker is None]
        return explain_absence(shape, facts.absent) or no_node_fits(shape, agents)
    if barred is not None:
        return over_limit(barred)
    if (closed := closed_downstream(facts)) is not None:
        return closed
    taking = [offer for offer in large_enough if offer.takes_work]
    if not taking and (short := [offer for offer in large_enough if not offer.draining]):
        return _nodes_short(short)
    if not taking:
        return Reason(
            "nodes_draining",
            "The only node that could run it is being drained and takes no new tasks."
            if len(large_enough) == 1
            else f"The {len(large_enough)} nodes that could run it are being drained and take no "
            "new tasks.",
            {"nodes": len(large_enough)},
        )
    if (full := queue_full(facts)) is not None:
        return full
    if (postponed := explain_postponement(facts)) is not None:
        return postponed
    if facts.competition is not None and facts.competition.puts_others_first:
        return beyond_fair_share(facts.competition, facts.ahead)
    if facts.user_competition is not None and facts.user_competition.puts_others_first:
        return beyond_fair_share(facts.user_competition, facts.ahead, sharer="user")
    if all(offer.free.shortage(facts.needs, offer.capacity) for offer in taking):
        if shape.function is not None:
            return add_next_end(workers_busy(shape.function, taking), taking, facts.now)
        return add_next_end(_no_room(facts, taking), taking, facts.now)
    if (limited := at_rate(facts)) is not None:
        return limited
    if (headroom := explain_headroom(facts, shape, taking)) is not None:
        return headroom
    if facts.ahead:
        return Reason(
            "not_its_turn",
            f"{count_of(facts.ahead, 'task')} of its tenant with the same needs must start earlier "
            f"and {'goes' if facts.ahead == 1 else 'go'} first.",
            {"ahead": facts.ahead},
        )
    return Reason(
        "not_its_turn",
        "There is room for it: it starts in a moment, unless that room is kept for a larger task "
        "that must start earlier.",
    )


def limit_in_the_way(facts: Facts) -> BlockingLimit | None:
    """Return the limit of its tenant that keeps a waiting task from starting.

    Nothing else of its tenant matters for the reason of a waiting task.
    """
    return blocking_limit(facts.limits, facts.use, facts.under_key, facts.shape)


def _nodes_short(offers: Sequence[Offer]) -> Reason:
    """Return the reason for nodes that lack something of their own to start tasks."""
    first = offers[0]
    others = ""
    if len(offers) > 1:
        others = f", like {count_of(len(offers) - 1, 'other node', 'other nodes')}"
    return Reason(
        "nodes_short",
        f"Node {first.name} is short of {first.shortage} and takes no tasks until it has "
        f"more{others}.",
        {"nodes": len(offers), "node": first.name, "short_of": first.shortage},
    )


def over_limit(barred: BlockingLimit) -> Reason:
    """Return the reason for a limit that keeps a task from starting, with its usage."""
    limit, used = barred.limit, barred.used
    figures = {"limit": limit, "used": used}
    if barred.code == "concurrency_limit":
        return Reason(
            barred.code,
            f"{_tasks_run(used, f' with the concurrency key {barred.kind!r}')}; at most {limit} "
            "may run at once.",
            {"key": barred.kind, **figures},
        )
    if barred.kind == RUNNING:
        return Reason(
            barred.code,
            f"{_tasks_run(used, ' of its tenant')}; the plan allows {limit} at once.",
            {"kind": barred.kind, **figures},
        )
    needed = format_amount(barred.kind, barred.needed)
    return Reason(
        barred.code,
        f"It needs {needed}; the plan allows {format_bare_amount(barred.kind, limit)} at once, and "
        f"its tenant uses {format_bare_amount(barred.kind, used)}.",
        {
            "kind": field_name(barred.kind),
            "needed": field_amount(barred.kind, barred.needed),
            "limit": field_amount(barred.kind, limit),
            "used": field_amount(barred.kind, used),
        },
    )


def _tasks_run(count: int, whose: str) -> str:
    return f"{count_of(count, 'task')}{whose} {'is' if count == 1 else 'are'} running"


def _no_room(facts: Facts, taking: Sequence[Offer]) -> Reason:
    short = min(
        (offer.free.shortage(facts.needs, offer.capacity) for offer in taking),
        key=lambda missing: (len(missing), sum(missing.values())),
    )
    amounts = dict(facts.needs.items())
    wanted = either((format_amount(kind, amounts[kind]) for kind in short), "and")
    where = f"any of {len(taking)} nodes" if len(taking) > 1 else f"node {taking[0].name}"
    return Reason(
        "no_capacity",
        f"Waiting for {wanted} to become free on {where}.{_reserved(facts, taking, short)}",
        {"kinds": sorted(map(field_name, short)), "nodes": len(taking)},
    )


def _reserved(facts: Facts, taking: Sequence[Offer], short: Collection[str]) -> str:
    """Return a sentence on the reservations without which a node would have room for the task."""
    for offer in taking:
        reserved = dict(offer.reserved.items())
        if any(reserved.get(kind) for kind in short) and not offer.free.plus(
            offer.reserved
        ).shortage(facts.needs, offer.capacity):
            amounts = (format_amount(kind, reserved[kind]) for kind in short if reserved.get(kind))
            return f" Reservations keep {either(amounts, 'and')} of node {offer.name}."
    return ""
