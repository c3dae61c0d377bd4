"""Explains why a task is where it is (`duly why`): always exactly one binding reason.

The facts are the values that placement decides by, so the explanation cannot differ from what
the scheduler sees. If several things keep a task from running, the reason is the one that has to
change first.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar, assert_never

import msgspec

from duly.model.limits import UNLIMITED, Limits
from duly.model.node import AbsentNode, NodeProfile, Offer
from duly.model.pause import Pause
from duly.model.queue import Queue
from duly.model.requests.allowance import SHORT_NAMES
from duly.model.resources import (
    Resources,
    field_amount,
    field_name,
    format_amount,
    format_bare_amount,
)
from duly.model.shape import Concurrency, Shape
from duly.model.task import Reason, Status
from duly.model.wording import count_of, either, uncapitalised
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

N = TypeVar("N", Offer, NodeProfile)
SUSPENDED = "Its tenant is suspended, so none of its tasks start. An administrator can resume it."


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
    resume = f"Resume it with 'duly resume {facts.task}'."
    if (graph := details["graph"]) is not None:
        resume = (
            f"Resume the graph with 'duly resume --graph {graph}', or this task alone with 'duly "
            f"resume {facts.task}'."
        )
    message = f"Paused{origin}. {resume}"
    if facts.blocked_by:
        message += f" After that, it waits for {count_of(facts.blocked_by, 'task')} to end."
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
        others = count_of(facts.blocked_by, "task")
        return Reason(
            "upstream_running", f"Waiting for {others} to end.", {"left": facts.blocked_by}
        )
    named = [str(task) for task in facts.awaited]
    more = facts.blocked_by - len(named)
    noun = "task" if facts.blocked_by == 1 else "tasks"
    message = "The tasks that it waited for have just ended; it continues in a moment."
    if named:
        listed = either([*named, f"{more} more"] if more > 0 else named, "and")
        message = f"Waiting for {noun} {listed} to end."
    return Reason(
        "upstream_running",
        message,
        {"left": facts.blocked_by, "upstreams": [str(task) for task in facts.awaited]},
    )


def _scheduled(facts: Facts) -> Reason:
    at = _time(facts.ready_at)
    if facts.attempt == 0:
        return Reason("not_due", f"Scheduled to start at {at}.", {"ready_at": at})
    last = "" if facts.stored is None else f": {uncapitalised(facts.stored.message).rstrip('.')}"
    return Reason(
        "retry_backoff",
        f"Attempt {facts.attempt} failed{last}. Attempt {facts.attempt + 1} is scheduled to start "
        f"at {at}.",
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
            f"Being stopped on {node}: it was cancelled at {at}.",
            {"node": facts.node, "cancel_requested_at": at},
        )
    since = None if facts.leased_at is None else _time(facts.leased_at)
    if facts.is_paused:
        origin, details = _pause_origin(facts)
        return Reason(
            "pause_requested",
            f"Running on {node}. It was paused{origin}: if this attempt fails, the next one starts "
            f"only after 'duly resume {facts.task}'.",
            {"node": facts.node, "since": since, **details},
        )
    return Reason(
        "running",
        f"Running on {node}" + (f" since {since}." if since else "."),
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
        return Reason("tenant_suspended", SUSPENDED)
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
        return Reason(
            "nodes_draining",
            "The only node that could run it is being drained and takes no new tasks."
            if len(large_enough) == 1
            else f"The {len(large_enough)} nodes that could run it are being drained and take no "
            "new tasks.",
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
            f"{count_of(facts.ahead, 'task')} with the same needs must start earlier and "
            f"{'goes' if facts.ahead == 1 else 'go'} first.",
            {"ahead": facts.ahead},
        )
    return Reason(
        "not_its_turn",
        "There is room for it: it starts in a moment, unless that room is kept for a larger task "
        "that must start earlier.",
    )


def _no_node_fits(facts: Facts, shape: Shape) -> Reason:
    """Return why none of the connected nodes could run it, even if it were idle."""
    if not facts.offers:
        return Reason("no_nodes", "No node is connected. Start one with 'duly agent'.")
    labelled = [offer for offer in facts.offers if not shape.missing(offer.labels)]
    if not labelled:
        return missing_labels(shape, [offer.labels for offer in facts.offers])
    return _too_large(facts.needs, labelled)


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


def missing_labels(shape: Shape, nodes: Sequence[Mapping[str, str]]) -> Reason:
    """Return the reason for labels that no node has, by the node that lacks the fewest.

    `nodes` are the labels of each; there is at least one node, and none has all.
    """
    missing = min((shape.missing(labels) for labels in nodes), key=len)
    labels_text = either((f"{name}={value}" for name, value in missing.items()), "and")
    noun = "label" if len(missing) == 1 else "labels"
    rest = (
        ", which it requires" if missing == shape.requires else " and all others that it requires"
    )
    return Reason(
        "no_node_has_label",
        f"No node has the {noun} {labels_text}{rest}.",
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
    short = _nearest(shape.needs, labelled).capacity.shortage(shape.needs)
    return Reason(
        "no_node_can_fit",
        _describe_shortage(shape.needs, short),
        {"short": {field_name(kind): field_amount(kind, amount) for kind, amount in short.items()}},
    )


def _too_large(needs: Resources, offers: Sequence[Offer]) -> Reason:
    """Return what the node nearest to fitting lacks."""
    nearest = _nearest(needs, offers)
    missing = nearest.capacity.shortage(needs)
    kind = max(missing, key=lambda name: missing[name])
    needed = dict(needs.items())[kind]
    has = needed - missing[kind]
    return Reason(
        "no_node_can_fit",
        _describe_shortage(needs, missing),
        {
            "kind": field_name(kind),
            "needed": field_amount(kind, needed),
            "largest": field_amount(kind, has),
            "node": nearest.name,
        },
    )


def _nearest(needs: Resources, nodes: Sequence[N]) -> N:
    """Return the node that comes nearest to fitting: it shows best what is missing."""

    def distance(node: N) -> tuple[int, int]:
        missing = node.capacity.shortage(needs)
        return len(missing), sum(missing.values())

    return min(nodes, key=distance)


def _describe_shortage(needs: Resources, missing: Mapping[str, int]) -> str:
    """Return a sentence about the kind of which the nearest node lacks most."""
    kind = max(missing, key=lambda name: missing[name])
    needed = dict(needs.items())[kind]
    has = needed - missing[kind]
    largest = f"the largest node has {format_bare_amount(kind, has)}" if has else "no node has any"
    return f"No node is large enough: it needs {format_amount(kind, needed)}; {largest}."


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
        f"Waiting for {wanted} to become free on {where}.",
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
        f"Waiting for quiet hours: {used} % of the {'CPU' if kind == 'cpu' else kind} of all nodes "
        f"is in use; off_peak tasks start below {peak} %" + (f", or at {until}." if until else "."),
        {"kind": kind, "used_percent": used, "peak_percent": peak, "until": until},
    )


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
