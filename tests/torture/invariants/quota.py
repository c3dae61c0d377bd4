"""Invariant 12: no tenant ever exceeds its concurrency quota.

What is judged is what was leased, in the order in which it took effect. Limits are those at the
end of the run: a run may raise them and must not lower them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec

from duly.model.resources import NO_RESOURCES, Resources
from duly.policy.limits import amount
from tests.torture.database_dump import TenantRow
from tests.torture.evidence import Evidence, Violation

Held = dict[int, int]
"""What runs of a tenant: tasks with their shapes."""


def quota(evidence: Evidence) -> list[Violation]:
    """12: at each instant what is leased to a tenant is within its limits, and those of keys."""
    return list(_overdrawn(evidence))


def most_at_once(evidence: Evidence, tenant: int) -> int:
    """Return how many tasks of a tenant ran at the same time."""
    return max((len(held) for owner, _, held in _leases(evidence) if owner == tenant), default=0)


def _overdrawn(evidence: Evidence) -> Iterator[Violation]:
    limits = {row.id: row for row in evidence.books.tenants}
    for tenant, task, held in _leases(evidence):
        row = limits.get(tenant, TenantRow(id=tenant))
        if row.max_running is not None and len(held) > row.max_running:
            yield Violation(12, f"{len(held)} run of {row.max_running} that may", task)
        used = _used(evidence, held)
        for kind, most in (row.max_resources or {}).items():
            if amount(used, kind) > most:
                yield Violation(12, f"{amount(used, kind)} {kind} of {most} are given", task)
        stated = [key for shape in held.values() if (key := evidence.books.keys.get(shape))]
        running = Counter(one["key"] for one in stated)
        for key, limit in {(one["key"], one["limit"]) for one in stated}:
            if running[key] > limit:
                yield Violation(12, f"{running[key]} run with a key that allows {limit}", task)


def _leases(evidence: Evidence) -> Iterator[tuple[int, int, Held]]:
    """Yield for each lease its tenant, its task, and what that tenant has by then."""
    held: defaultdict[int, Held] = defaultdict(dict)
    for step in evidence.books.journal:
        if step.what != "live" or step.task is None or step.task not in evidence.tasks:
            continue
        tenant = evidence.tasks[step.task].tenant_id
        was_held = held[tenant].pop(step.task, None) is not None
        if step.op != "delete" and step.token is not None and step.shape is not None:
            held[tenant][step.task] = step.shape
            if not was_held:
                yield tenant, step.task, held[tenant]


def _used(evidence: Evidence, held: Held) -> Resources:
    used = NO_RESOURCES
    for shape in held.values():
        used = used.plus(msgspec.convert(evidence.books.shapes.get(shape, {}), Resources))
    return used
