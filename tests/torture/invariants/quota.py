"""Invariant 12: no tenant ever exceeds its concurrency quota.

Leases are checked in the order in which they took effect, against the limits at the end of the run:
a run may raise limits, but must not lower them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec

from duly.model.resources import NO_RESOURCES, Resources
from duly.policy.budget.limits import amount
from tests.torture.database_dump import TenantRow
from tests.torture.evidence import Evidence, Violation

RunningTasks = dict[int, int]
"""The running tasks of a tenant, with their shapes."""


def quota(evidence: Evidence) -> list[Violation]:
    """12: at any time the leases of a tenant are within its quota and its concurrency limits."""
    return list(_exceeded(evidence))


def max_concurrency(evidence: Evidence, tenant: int) -> int:
    """Return the highest number of tasks of a tenant that ran at the same time."""
    return max((len(held) for owner, _, held in _leases(evidence) if owner == tenant), default=0)


def _exceeded(evidence: Evidence) -> Iterator[Violation]:
    limits = {row.id: row for row in evidence.dump.tenants}
    for tenant, task, held in _leases(evidence):
        row = limits.get(tenant, TenantRow(id=tenant))
        if row.max_running is not None and len(held) > row.max_running:
            yield Violation(12, f"{len(held)} tasks run, and {row.max_running} may", task)
        used = _used(evidence, held)
        for kind, limit_of_kind in (row.max_resources or {}).items():
            if amount(used, kind) > limit_of_kind:
                yield Violation(
                    12, f"{amount(used, kind)} {kind} are leased, and {limit_of_kind} may be", task
                )
        limits_of_keys = [key for shape in held.values() if (key := evidence.dump.keys.get(shape))]
        running = Counter(limit["key"] for limit in limits_of_keys)
        for key, limit in {(limit["key"], limit["limit"]) for limit in limits_of_keys}:
            if running[key] > limit:
                yield Violation(
                    12, f"{running[key]} tasks run with a key that allows {limit}", task
                )


def _leases(evidence: Evidence) -> Iterator[tuple[int, int, RunningTasks]]:
    """Yield, for each lease, its tenant, its task, and the running tasks of that tenant."""
    held: defaultdict[int, RunningTasks] = defaultdict(dict)
    for step in evidence.dump.journal:
        if step.what != "live" or step.task is None or step.task not in evidence.tasks:
            continue
        tenant = evidence.tasks[step.task].tenant_id
        was_held = held[tenant].pop(step.task, None) is not None
        if step.op != "delete" and step.token is not None and step.shape is not None:
            held[tenant][step.task] = step.shape
            if not was_held:
                yield tenant, step.task, held[tenant]


def _used(evidence: Evidence, held: RunningTasks) -> Resources:
    used = NO_RESOURCES
    for shape in held.values():
        used = used.plus(msgspec.convert(evidence.dump.shapes.get(shape, {}), Resources))
    return used
