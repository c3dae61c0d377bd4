"""Invariant 11: neither leases nor running tasks ever exceed the capacity of a node."""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from duly.model.resources import NO_RESOURCES, Resources
from tests.torture.evidence import BLUR, Evidence, Violation
from tests.torture.ledger import Entry


def capacity(evidence: Evidence) -> list[Violation]:
    """11: at each instant what is leased, and what really runs, fits on the node."""
    return [*_leased(evidence), *_ran(evidence)]


def _leased(evidence: Evidence) -> Iterator[Violation]:
    """Follow the leases of each incarnation: an old one's are nobody's by the time of the next."""
    room = _capacities(evidence)
    needs = {
        shape: msgspec.convert(given, Resources) for shape, given in evidence.books.shapes.items()
    }
    held: dict[int, tuple[int, int]] = {}
    used: defaultdict[int, Resources] = defaultdict(lambda: NO_RESOURCES)
    for step in evidence.books.journal:
        if step.what != "live" or step.task is None:
            continue
        if step.task in held:
            incarnation, shape = held.pop(step.task)
            used[incarnation] = used[incarnation].plus(needs[shape], -1)
        if step.op == "delete" or step.incarnation is None or step.shape not in needs:
            continue
        held[step.task] = (step.incarnation, step.shape)
        used[step.incarnation] = used[step.incarnation].plus(needs[step.shape])
        if step.incarnation in room and not step.cancel_requested:
            short = room[step.incarnation].shortage(used[step.incarnation])
            if short:
                message = f"incarnation {step.incarnation} was given {short} too much"
                yield Violation(11, message, step.task, at=step.boot)


def _ran(evidence: Evidence) -> Iterator[Violation]:
    """Follow what runs on each node; what is killed counts only until its last word."""
    rooms: dict[str, int] = {}
    for row in evidence.books.incarnations:
        name = evidence.nodes.get(row.node_id, "")
        rooms[name] = max(rooms.get(name, 0), row.capacity.get("cpu_milli", 0))
    changes: defaultdict[str, list[tuple[float, int, Entry]]] = defaultdict(list)
    for entries in evidence.written.values():
        first, last, node = entries[0], entries[-1], evidence.node_of(entries[0])
        if node in rooms and last.at - BLUR > first.at:
            changes[node].append((first.at, first.cpu_milli, first))
            changes[node].append((last.at - BLUR, -first.cpu_milli, last))
    for node, moments in changes.items():
        running = 0
        for at, cpu, entry in sorted(moments, key=lambda one: one[:2]):
            running += cpu
            if cpu > 0 and running > rooms[node]:
                message = f"{node} ran {running} of {rooms[node]} m cpu at {at:.2f}"
                yield Violation(11, message, entry.task, at=at)


def _capacities(evidence: Evidence) -> dict[int, Resources]:
    """Return what incarnations have; those whose capacity a person has changed are left out."""
    changed = {row.id for row in evidence.books.nodes if row.capacity_override}
    return {
        row.id: msgspec.convert(row.capacity, Resources)
        for row in evidence.books.incarnations
        if row.node_id not in changed
    }
