"""Explains why a task is where it is (`duly why`): always exactly one binding reason.

The facts are the values that placement decides by, so the explanation cannot differ from what
the scheduler sees. If several things keep a task from running, the reason is the one that has to
change first.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import assert_never

import msgspec

from duly.model.limits import UNLIMITED, Limits
from duly.model.node import AbsentNode, NodeProfile, Offer
from duly.model.pause import Pause
from duly.model.queue import Queue
from duly.model.requests.allowance import SHORT_NAMES
from duly.model.resources import Resources, field_amount, field_name, format_amount
from duly.model.shape import Concurrency, Shape
from duly.model.task import Reason, Status
from duly.policy.absent_nodes import explain_absence
from duly.policy.competition import Competition, beyond_fair_share
from duly.policy.limits import (
    NO_KEY_USAGE,
    NO_USAGE,
    RUNNING,
    BlockingLimit,
    KeyUsage,
    TenantUsage,
    blocking_limit,
)
from duly.policy.peak import Load, ResourceShare
from duly.policy.wait_position import add_next_end, add_position


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task and of the nodes that it could run on."""

    task: int = 0
    status: Status
    attempt: int
    ready_at: datetime
    needs: Resources
    requires: dict[str, str] = {}
    stored: Reason | None = None
    """The stored reason: of its end, or of the last failed attempt."""
    node: str | None = None
    leased_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    is_paused: bool = False
    """Whether it waits to be resumed; a running one is not retried before."""
    pause: Pause | None = None
    offers: Sequence[Offer] = ()
    absent: Sequence[AbsentNode] = ()
    """Nodes that are down or removed; only read if none of the offers could ever fit the task."""
    now: datetime | None = None
    """When the offers were read."""
    ahead: int | None = None
    """Tasks of its shape ranked before it, up to a counting limit; None if not counted."""
    concurrency: Concurrency | None = None
    limits: Limits = UNLIMITED
    use: TenantUsage = NO_USAGE
    """The usage of its tenant."""
    blocked_by: int = 0
    """The number of its unfinished upstream tasks."""
    awaited: Sequence[int] | None = ()
    """The ids of some of them; None if they were not read."""
    under_key: KeyUsage = NO_KEY_USAGE
    """Running attempts of its tenant with its concurrency key."""
    queue: Queue | None = None
    """The queue that it is in now."""
    urgent_at: datetime | None = None
    """When its slack runs out and it moves to the urgent queue."""
    peak_percent: int = 100
    competition: Competition | None = None
    """None if no other tenant competes, or that was not looked up."""


def explain(facts: Facts) -> Reason:
    """Return the one reason why the task is where it is."""
    match facts.status:
        case Status.SCHEDULED:
            return _scheduled(facts)
        case Status.BLOCKED:
            return _blocked(facts)
        case Status.WAITING:
            return add_position(_waiting(facts), facts.ahead)
        case Status.RUNNING:
            return _running(facts)
        case Status.PAUSED:
            return _paused(facts)
        case Status.DONE:
            return facts.stored or Reason("done", "It is done.")
        case Status.FAILED:
            return facts.stored or Reason("failed", "It failed.")
        case Status.CANCELLED:
            return facts.stored or Reason("cancelled", "It was cancelled.")
        case _:
            assert_never(facts.status)


def _paused(facts: Facts) -> Reason:
    """Return who paused it, how to resume it, and the upstream tasks it waits for besides."""
    origin, details = _pause_origin(facts)
    resume = f"`duly resume {facts.task}`"
    if (graph := details["graph"]) is not None:
        resume = f"`duly resume --graph {graph}`, or {resume} for it alone,"
    message = f"Was paused{origin}; {resume} lets it go on."
    if facts.blocked_by:
        others = "1 task" if facts.blocked_by == 1 else f"{facts.blocked_by} tasks"
        message += f" Then it waits for {others} to end."
    return Reason("paused", message, details)


def _pause_origin(facts: Facts) -> tuple[str, dict[str, str | None]]:
    """Return who or what paused it and when, as text and as details."""
    pause = facts.pause
    if pause is None:
        return "", {"by": None, "graph": None, "paused_at": None}
    by, graph, at = pause.cause.by, pause.cause.graph, _time(pause.at)
    origin = f" with its graph {graph}" if graph else f" by {by}" if by else ""
    return f"{origin} at {at}", {"by": by, "graph": graph, "paused_at": at}


def _blocked(facts: Facts) -> Reason:
    if facts.awaited is None:
        others = "1 task" if facts.blocked_by == 1 else f"{facts.blocked_by} tasks"
        return Reason("upstream_running", f"Waits for {others} to end.", {"left": facts.blocked_by})
    named = ", ".join(str(task) for task in facts.awaited)
    more = facts.blocked_by - len(facts.awaited)
    message = f"Waits for {'task' if facts.blocked_by == 1 else 'tasks'} {named}"
    if not facts.awaited:
        message = "What it waited for has just ended; it goes on in a moment"
    elif more > 0:
        message += f" and {more} more"
    return Reason(
        "upstream_running",
        f"{message}{' to end.' if facts.awaited else '.'}",
        {"left": facts.blocked_by, "upstreams": [str(task) for task in facts.awaited]},
    )


def _scheduled(facts: Facts) -> Reason:
    at = _time(facts.ready_at)
    if facts.attempt == 0:
        return Reason("not_due", f"Waits until {at}, its time.", {"ready_at": at})
    last = "" if facts.stored is None else f": {facts.stored.message.rstrip('.')}"
    return Reason(
        "retry_backoff",
        f"Attempt {facts.attempt} failed{last}. It is tried again at {at}.",
        {
            "ready_at": at,
            "attempt": facts.attempt,
            "last": None if facts.stored is None else facts.stored.code,
        },
    )


def _running(facts: Facts) -> Reason:
    node = facts.node or "a node"
    if facts.cancel_requested_at is not None:
        at = _time(facts.cancel_requested_at)
        return Reason(
            "cancel_requested",
            f"Is being stopped on {node}; it was cancelled at {at}.",
            {"node": facts.node, "cancel_requested_at": at},
        )
    since = None if facts.leased_at is None else _time(facts.leased_at)
    if facts.is_paused:
        origin, details = _pause_origin(facts)
        return Reason(
            "pause_requested",
            f"Runs on {node} to its end. It was paused{origin}: should it fail, it is tried again "
            f"only after `duly resume {facts.task}`.",
            {"node": facts.node, "since": since, **details},
        )
    return Reason(
        "running",
        f"Runs on {node}" + (f" since {since}." if since else "."),
        {"node": facts.node, "since": since},
    )


def limit_in_the_way(facts: Facts) -> BlockingLimit | None:
    """Return the limit of its tenant that keeps a waiting task from starting.

    Nothing else of its tenant matters for the reason of a waiting task.
    """
    shape = Shape(facts.needs, facts.requires, facts.concurrency)
    return blocking_limit(facts.limits, facts.use, facts.under_key, shape)


def _waiting(facts: Facts) -> Reason:
    shape = Shape(facts.needs, facts.requires, facts.concurrency)
    barred = limit_in_the_way(facts)
    if facts.limits.is_suspended:
        return Reason("tenant_suspended", "Its tenant is suspended; nothing of it starts.")
    large_enough = [
        offer
        for offer in facts.offers
        if not shape.missing(offer.labels) and not offer.capacity.shortage(facts.needs)
    ]
    if not large_enough:
        return explain_absence(shape, facts.absent) or _no_node_fits(facts, shape)
    if barred is not None:
        return over_limit(barred)
    taking = [offer for offer in large_enough if offer.takes_work]
    if not taking and (short := [offer for offer in large_enough if not offer.draining]):
        return _nodes_short(short)
    if not taking:
        one = len(large_enough) == 1
        return Reason(
            "nodes_draining",
            f"{_nodes(len(large_enough))} could run it, but "
            + ("takes no more tasks: it is" if one else "take no more tasks: they are")
            + " being drained.",
            {"nodes": len(large_enough)},
        )
    if facts.queue is Queue.OFF_PEAK:
        share = Load(facts.offers).scarcest(facts.needs)
        if share.reaches(facts.peak_percent):
            return _off_peak(facts, share)
    competition = facts.competition
    if competition and competition.entitled_tenants and not competition.is_entitled:
        return beyond_fair_share(competition, facts.ahead)
    if all(offer.free.shortage(facts.needs, offer.capacity) for offer in taking):
        return add_next_end(_no_room(facts, taking), taking, facts.now)
    if facts.ahead:
        return Reason(
            "not_its_turn",
            "1 task like it that must start earlier goes first."
            if facts.ahead == 1
            else f"{facts.ahead} tasks like it that must start earlier go first.",
            {"ahead": facts.ahead},
        )
    return Reason(
        "not_its_turn",
        "There is room for it; it is placed in one of the next rounds, unless that room is kept"
        " for a larger task that must start earlier.",
    )


def _no_node_fits(facts: Facts, shape: Shape) -> Reason:
    """Return why none of the connected nodes could run it, even if it were idle."""
    if not facts.offers:
        return Reason("no_nodes", "No node is connected; start an agent.")
    labelled = [offer for offer in facts.offers if not shape.missing(offer.labels)]
    if not labelled:
        return missing_labels(shape, [offer.labels for offer in facts.offers])
    return _too_large(facts.needs, labelled)


def _nodes_short(offers: Sequence[Offer]) -> Reason:
    """Return the reason for nodes that lack something of their own to start tasks."""
    first = offers[0]
    others = f", like {len(offers) - 1} more" if len(offers) > 1 else ""
    return Reason(
        "nodes_short",
        f"{first.name} is short of {first.shortage} and takes no tasks until it has more{others}.",
        {"nodes": len(offers), "node": first.name, "short_of": first.shortage},
    )


def over_limit(barred: BlockingLimit) -> Reason:
    """Return the reason for a limit that keeps a task from starting, with its usage."""
    limit, used = barred.limit, barred.used
    figures = {"limit": limit, "used": used}
    if barred.code == "concurrency_limit":
        return Reason(
            barred.code,
            f"{_tasks_run(used)} with the key {barred.kind}; no more than {limit} may run at once.",
            {"key": barred.kind, **figures},
        )
    if barred.kind == RUNNING:
        return Reason(
            barred.code,
            f"{_tasks_run(used)} of its tenant; the plan allows {limit} at once.",
            {"kind": barred.kind, **figures},
        )
    needed = format_amount(barred.kind, barred.needed)
    return Reason(
        barred.code,
        f"Needs {needed}; of the {format_amount(barred.kind, limit)} that the plan allows at once, "
        f"its "
        + (
            "tenant has none yet."
            if not used
            else f"tenant has {format_amount(barred.kind, used)}."
        ),
        {
            "kind": field_name(barred.kind),
            "needed": field_amount(barred.kind, barred.needed),
            "limit": field_amount(barred.kind, limit),
            "used": field_amount(barred.kind, used),
        },
    )


def _tasks_run(count: int) -> str:
    return "1 task runs" if count == 1 else f"{count} tasks run"


def missing_labels(shape: Shape, nodes: Sequence[Mapping[str, str]]) -> Reason:
    """Return the reason for labels that no node has, by the node that lacks the fewest.

    `nodes` are the labels of each; there is at least one node, and none has all.
    """
    missing = min((shape.missing(labels) for labels in nodes), key=len)
    labels_text = " and ".join(f"{name}={value}" for name, value in missing.items())
    rest = " along with the other labels that it requires" if missing != shape.requires else ""
    return Reason(
        "no_node_has_label",
        f"Requires {labels_text}{rest}, which "
        + (
            "the only node does not have."
            if len(nodes) == 1
            else f"none of {len(nodes)} nodes has."
        ),
        {"missing": missing, "nodes": len(nodes)},
    )


def never_fits(
    shape: Shape, nodes: Sequence[NodeProfile], removed: Sequence[AbsentNode] = ()
) -> Reason:
    """Return why none of `nodes`, of which there is at least one, could ever fit a shape.

    If one of the nodes that were `removed` could have run it, that is the reason.
    """
    if (absence := explain_absence(shape, removed)) is not None:
        return absence
    labelled = [node for node in nodes if not shape.missing(node.labels)]
    if not labelled:
        return missing_labels(shape, [node.labels for node in nodes])
    # The node that comes closest shows best what is missing.
    short = min((node.capacity.shortage(shape.needs) for node in labelled), key=len)
    missing = ", ".join(format_amount(kind, amount) for kind, amount in short.items())
    return Reason(
        "no_node_can_fit",
        f"No node could ever fit it: the closest of {len(labelled)} is short of {missing}.",
        {"short": {field_name(kind): field_amount(kind, amount) for kind, amount in short.items()}},
    )


def _too_large(needs: Resources, offers: Sequence[Offer]) -> Reason:
    """Return what the node nearest to fitting lacks."""
    nearest = min(
        offers,
        key=lambda o: (
            len(o.capacity.shortage(needs)),
            sum(o.capacity.shortage(needs).values()),
        ),
    )
    missing = nearest.capacity.shortage(needs)
    kind = max(missing, key=lambda name: missing[name])
    needed = dict(needs.items())[kind]
    has = needed - missing[kind]
    return Reason(
        "no_node_can_fit",
        f"No node is large enough: it needs {format_amount(kind, needed)}; the largest node, "
        f"{nearest.name}, has {format_amount(kind, has)}.",
        {
            "kind": field_name(kind),
            "needed": field_amount(kind, needed),
            "largest": field_amount(kind, has),
            "node": nearest.name,
        },
    )


def _no_room(facts: Facts, taking: Sequence[Offer]) -> Reason:
    short = min(
        (offer.free.shortage(facts.needs, offer.capacity) for offer in taking),
        key=lambda missing: (len(missing), sum(missing.values())),
    )
    amounts = dict(facts.needs.items())
    wanted = " and ".join(format_amount(kind, amounts[kind]) for kind in short)
    return Reason(
        "no_capacity",
        f"Waiting for {wanted} on {'any of ' if len(taking) > 1 else ''}{_nodes(len(taking))}.",
        {"kinds": sorted(map(field_name, short)), "nodes": len(taking)},
    )


def _off_peak(facts: Facts, share: ResourceShare) -> Reason:
    kind, used, peak = (
        SHORT_NAMES.get(share.kind, share.kind),
        int(share.percent),
        facts.peak_percent,
    )
    until = None if facts.urgent_at is None else _time(facts.urgent_at)
    return Reason(
        "off_peak",
        f"Waits for quieter times: {used} % of the {kind} of all nodes is in use, and work that is "
        f"off_peak begins below {peak} %" + (f", or at {until}." if until else "."),
        {"kind": kind, "used_percent": used, "peak_percent": peak, "until": until},
    )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
