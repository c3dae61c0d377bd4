"""Collects the facts that a task's reason is explained by, for one task or for a whole list."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from duly.config import SchedulingSettings
from duly.model.limits import UNLIMITED, Limits
from duly.model.node import AbsentNode, Offer
from duly.model.queues.downstream import Downstream
from duly.model.queues.pause import Pause
from duly.model.queues.peak import PeakState
from duly.model.queues.queue import QueueDefinitions
from duly.model.resources import NO_RESOURCES, Resources
from duly.model.shape import FunctionRef
from duly.model.task import Reason, Status
from duly.policy import placement
from duly.policy.budget.limits import NO_KEY_USAGE, KeyUsage, TenantUsage
from duly.policy.budget.queue_room import held_by_queue
from duly.policy.explanation.explain import explain
from duly.policy.explanation.facts import Facts
from duly.policy.explanation.overdue import add_overdue
from duly.policy.explanation.waiting import limit_in_the_way
from duly.policy.queueing import queue_of
from duly.server.scheduling.downstream_limits import Owner, count_running
from duly.server.scheduling.limits_cache import count_usage
from duly.server.scheduling.peak_time import read_peak
from duly.store.accounts import downstreams
from duly.store.attempts import leases, quota_fence
from duly.store.database import Connection
from duly.store.fleet import fleet_snapshot, nodes
from duly.store.tasks import overdue
from duly.store.tasks.views import TaskView


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """What waiting tasks of a tenant compete for: nodes, and the tenant's limits."""

    now: datetime
    offers: Sequence[Offer]
    absent: Sequence[AbsentNode]
    limits: Limits
    use: TenantUsage
    keys: Mapping[str, KeyUsage]
    queues: QueueDefinitions
    held_by_queue: Mapping[str, Resources]
    downstreams: Mapping[Owner, tuple[Downstream, int]]
    """The limits of what its tasks call, its own and everyone's, and what runs under them."""
    peak: PeakState
    expected_ends: Mapping[int, timedelta]

    def add_to(self, facts: Facts) -> Facts:
        """Return the facts of a waiting task with the supply."""
        key = "" if facts.concurrency is None else facts.concurrency.key
        definition = self.queues.get(facts.stored_queue)
        return msgspec.structs.replace(
            facts,
            now=self.now,
            offers=self.offers,
            absent=self.absent,
            limits=self.limits,
            use=self.use,
            under_key=self.keys.get(key, NO_KEY_USAGE),
            definition=definition,
            held_by_queue=self.held_by_queue.get(definition.name, NO_RESOURCES),
            downstreams=[
                limit for (_, used), limit in self.downstreams.items() if used in facts.uses
            ],
            peak=self.peak,
            expected_ends=self.expected_ends,
        )


def facts_of(
    view: TaskView,
    scheduling: SchedulingSettings,
    *,
    ahead: int | None = None,
    awaited: Sequence[int] | None = None,
    pause: Pause | None = None,
) -> Facts:
    """Return the facts of a task, of a waiting one without the supply."""
    facts = Facts(
        task=view.id,
        status=view.status,
        attempt=view.attempt,
        ready_at=view.ready_at,
        needs=view.needs,
        requires=view.requires,
        concurrency=view.concurrency,
        uses=view.uses,
        function=None if view.function is None else FunctionRef(view.tenant_id, view.function),
        stored=view.reason,
        node=view.node,
        leased_at=view.started_at,
        cancel_requested_at=view.cancel_requested_at,
        is_paused=view.is_paused,
        pause=pause,
        ahead=ahead,
        blocked_by=view.blocked_by,
        awaited=awaited,
        overdue_since=view.start_by if view.is_overdue else None,
        delay_tolerance=view.delay_tolerance,
    )
    return _with_queue(view, facts, scheduling) if view.status is Status.WAITING else facts


def _with_queue(view: TaskView, facts: Facts, scheduling: SchedulingSettings) -> Facts:
    """Return the facts of a waiting task with its queue."""
    slack = timedelta(0) if view.slack is None else view.slack
    return msgspec.structs.replace(
        facts,
        queue=queue_of(view.queue, slack, scheduling.urgent_slack),
        stored_queue=view.queue,
        start_by=view.start_by,
        scheduling=scheduling,
    )


async def read_supplies(
    conn: Connection, waiting: Mapping[int, Sequence[Facts]], scheduling: SchedulingSettings
) -> dict[int, Supply]:
    """Read what the waiting tasks of each tenant compete for, in one snapshot for all tenants.

    Absent nodes are read only if one of the tasks could run on none of the connected ones.
    """
    granted = await quota_fence.read_limits(conn, waiting)
    stock = await fleet_snapshot.read_snapshot(conn, tenants=waiting)
    shapes = await leases.read_shapes(conn, sorted(stock.shapes))
    uses, usage_by_key = count_usage(stock, waiting, shapes)
    keys: dict[int, dict[str, KeyUsage]] = {tenant_id: {} for tenant_id in waiting}
    for (tenant_id, key), usage in usage_by_key.items():
        keys[tenant_id][key] = usage
    offers = stock.free(shapes)
    attempts = ((use.shape_id, use.times) for use in stock.in_use)
    held = held_by_queue(attempts, shapes, granted.queues)
    limits = await _read_downstreams(conn, waiting)
    running = count_running(stock.in_use, shapes)
    absent = [] if _all_fit(waiting.values(), offers) else await nodes.read_absent(conn)
    peak = await read_peak(conn, offers, scheduling, stock.now)
    is_overdue = any(facts.overdue_since for tasks in waiting.values() for facts in tasks)
    ends = await overdue.read_expected_ends(conn) if is_overdue else {}
    return {
        tenant_id: Supply(
            now=stock.now,
            offers=offers,
            absent=absent,
            limits=granted.limits.get(tenant_id, UNLIMITED),
            use=uses[tenant_id],
            keys=keys[tenant_id],
            queues=granted.queues,
            held_by_queue=held,
            downstreams={
                owner: (limit, running[owner].total())
                for owner, limit in limits.items()
                if owner[0] in (None, tenant_id)
            },
            peak=peak,
            expected_ends=ends,
        )
        for tenant_id in waiting
    }


async def _read_downstreams(
    conn: Connection, waiting: Mapping[int, Sequence[Facts]]
) -> dict[Owner, Downstream]:
    """Return the limits of what the tasks call; nothing is read if they call nothing."""
    keys = {key for tasks in waiting.values() for facts in tasks for key in facts.uses}
    limits = await downstreams.read_by_key(conn, waiting, keys) if keys else []
    return {(limit.tenant_id, limit.key): limit for limit in limits}


def _all_fit(waiting: Iterable[Sequence[Facts]], offers: Sequence[Offer]) -> bool:
    """Return True if each task could run on one of the connected nodes."""
    connected = [offer.profile for offer in offers]
    wanted = {
        _shape_key(facts): facts.shape
        for tasks in waiting
        for facts in tasks
        # Calls that no worker takes are explained without absent nodes.
        if facts.function is None
    }
    return all(placement.could_ever_fit(shape, connected) for shape in wanted.values())


def explain_waiting(
    waiting: Mapping[int, Sequence[Facts]], supplies: Mapping[int, Supply]
) -> dict[int, Reason]:
    """Return the reason of each waiting task, given the supply of its tenant.

    Tasks of one shape and queue share theirs, unless a limit of their tenant is in the way.
    """
    shared: dict[bytes, Reason] = {}
    reasons = {}
    for tenant_id, tasks in waiting.items():
        for facts in map(supplies[tenant_id].add_to, tasks):
            queues = facts.queue, facts.stored_queue
            until, barred = facts.postponed_until, limit_in_the_way(facts)
            rest = msgspec.json.encode((queues, until, barred, facts.downstreams))
            key = _shape_key(facts) + rest
            if key not in shared:
                shared[key] = explain(msgspec.structs.replace(facts, overdue_since=None))
            reasons[facts.task] = add_overdue(shared[key], facts)
    return reasons


def _shape_key(facts: Facts) -> bytes:
    return msgspec.json.encode(
        (facts.needs, facts.requires, facts.concurrency, facts.uses, facts.function)
    )
