"""Invariant 11: neither leases nor running tasks ever exceed the capacity of a node."""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from duly.model.resources import NO_RESOURCES, Resources
from tests.torture.evidence import CLOCK_TOLERANCE, Evidence, Violation
from tests.torture.ledger import Entry


def capacity(evidence: Evidence) -> list[Violation]:
    """11: at any time the leased tasks, and the tasks that actually run, fit on their node."""
    return [*_leased_too_much(evidence), *_ran_too_much(evidence)]


def _leased_too_much(evidence: Evidence) -> Iterator[Violation]:
    """Replay the leases of each incarnation; those of an old one are void when the next begins."""
    capacity_by_incarnation = _capacities(evidence)
    needs = {
        shape: msgspec.convert(resources, Resources)
        for shape, resources in evidence.dump.shapes.items()
    }
    held: dict[int, tuple[int, int]] = {}
    used: defaultdict[int, Resources] = defaultdict(lambda: NO_RESOURCES)
    for step in evidence.dump.journal:
        if step.what != "live" or step.task is None:
            continue
        if step.task in held:
            incarnation, shape = held.pop(step.task)
            used[incarnation] = used[incarnation].plus(needs[shape], -1)
        if step.op == "delete" or step.incarnation is None or step.shape not in needs:
            continue
        held[step.task] = (step.incarnation, step.shape)
        used[step.incarnation] = used[step.incarnation].plus(needs[step.shape])
        if step.incarnation in capacity_by_incarnation and not step.cancel_requested:
            shortage = capacity_by_incarnation[step.incarnation].shortage(used[step.incarnation])
            if shortage:
                message = f"incarnation {step.incarnation} was leased {shortage} too much"
                yield Violation(11, message, step.task, at=step.boot)


def _ran_too_much(evidence: Evidence) -> Iterator[Violation]:
    """Replay what ran on each node; a killed task counts only until its last entry."""
    capacity_by_node: dict[str, int] = {}
    for row in evidence.dump.incarnations:
        name = evidence.nodes.get(row.node_id, "")
        capacity_by_node[name] = max(
            capacity_by_node.get(name, 0), row.capacity.get("cpu_milli", 0)
        )
    changes: defaultdict[str, list[tuple[float, int, Entry]]] = defaultdict(list)
    for entries in evidence.entries_by_attempt.values():
        first, last, node = entries[0], entries[-1], evidence.node_of(entries[0])
        if node in capacity_by_node and last.at - CLOCK_TOLERANCE > first.at:
            changes[node].append((first.at, first.cpu_milli, first))
            changes[node].append((last.at - CLOCK_TOLERANCE, -first.cpu_milli, last))
    for node, node_changes in changes.items():
        running = 0
        for at, cpu, entry in sorted(node_changes, key=lambda change: change[:2]):
            running += cpu
            if cpu > 0 and running > capacity_by_node[node]:
                message = f"{node} ran {running} of {capacity_by_node[node]} m cpu at {at:.2f}"
                yield Violation(11, message, entry.task, at=at)


def _capacities(evidence: Evidence) -> dict[int, Resources]:
    """Return the capacities of incarnations, except those with an override."""
    overridden = {row.id for row in evidence.dump.nodes if row.capacity_override}
    return {
        row.id: msgspec.convert(row.capacity, Resources)
        for row in evidence.dump.incarnations
        if row.node_id not in overridden
    }
