"""Invariants of capacity: leases and reservations fit their node at every step of the journal.

Only CPU is checked, as an example of all kinds of resources.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import asyncpg

from duly.wire import AttemptRef
from tests.interleavings.evidence import Evidence, is_lease, is_marked

Row = dict[str, Any]


class CapacityTracker:
    """Replays the journal row by row, and knows what is used on each node."""

    def __init__(self, needs: dict[int, int]) -> None:
        self._needs = needs
        self._capacity: dict[int, int] = {}
        self._override: dict[int, int] = {}
        self._incarnation_of_node: dict[int, int] = {}
        self._running: dict[int, Row] = {}
        self._stopping: dict[int, Row] = {}
        self._reserved: dict[int, Row] = {}

    def apply(self, row: asyncpg.Record) -> None:
        """Apply a row of the journal."""
        new, old = row["new"], row["old"]
        match row["what"]:
            case "live" if new and new["status"] == "running":
                self._running[new["id"]] = new
            case "live":
                self._running.pop((new or old)["id"], None)
            case "stopping_attempts" if new:
                self._stopping[new["token"]] = new
            case "stopping_attempts":
                self._stopping.pop(old["token"])
            case "incarnations" if row["op"] == "insert":
                self._capacity[new["id"]] = new["capacity"]["cpu_milli"]
                self._incarnation_of_node[new["node_id"]] = new["id"]
            case "nodes":
                self._override.pop(new["id"], None)
                if "cpu_milli" in new["capacity_override"]:
                    self._override[new["id"]] = new["capacity_override"]["cpu_milli"]
            case "reservations" if new:
                self._reserved[new["id"]] = new
            case "reservations":
                self._reserved.pop(old["id"])

    def overbooked(self, node: int, incarnation: int, at: datetime) -> str | None:
        """Return a sentence if a node has more leased and reserved than its capacity."""
        capacity = self._override.get(node, self._capacity[incarnation])
        used = sum(
            self._needs[row["shape_id"]]
            for row in (*self._running.values(), *self._stopping.values())
            if row["incarnation_id"] == incarnation
        )
        reserved = sum(
            row["resources"]["cpu_milli"]
            for row in self._reserved.values()
            if row["node_id"] == node and not is_expired(row, at)
        )
        if used + reserved <= capacity:
            return None
        return f"node {node} has {capacity}, of which {used} are leased and {reserved} reserved"

    def incarnation_of(self, node: int) -> int | None:
        """Return the latest incarnation of a node."""
        return self._incarnation_of_node.get(node)


def is_expired(reservation: Row, at: datetime) -> bool:
    """Return True if a reservation has expired."""
    until = reservation["expires_at"]
    return until is not None and datetime.fromisoformat(until) <= at


def a_lease_takes_only_what_is_free(evidence: Evidence) -> Iterator[str]:
    tracker = CapacityTracker(evidence.needs)
    for row in evidence.journal:
        tracker.apply(row)
        if is_lease(row):
            new = row["new"]
            excess = tracker.overbooked(new["node_id"], new["incarnation_id"], row["at"])
            if excess:
                yield f"task {new['id']} was leased, and {excess}"


def a_reservation_takes_only_what_is_free(evidence: Evidence) -> Iterator[str]:
    tracker = CapacityTracker(evidence.needs)
    for row in evidence.journal:
        tracker.apply(row)
        if row["what"] == "reservations" and _grows(row):
            node = row["new"]["node_id"]
            incarnation = tracker.incarnation_of(node)
            excess = incarnation and tracker.overbooked(node, incarnation, row["at"])
            if excess:
                yield f"{row['new']['id']} was reserved, and {excess}"


def _grows(row: asyncpg.Record) -> bool:
    if not row["new"]:
        return False
    before = row["old"]["resources"]["cpu_milli"] if row["old"] else 0
    return bool(row["new"]["resources"]["cpu_milli"] > before)


def a_reservation_lasts_until_it_is_released(evidence: Evidence) -> Iterator[str]:
    dropped: dict[int, asyncpg.Record] = {
        row["old"]["id"]: row
        for row in evidence.journal
        if row["what"] == "reservations" and row["op"] == "delete"
    }
    removed = {
        row["new"]["id"] for row in evidence.journal if row["what"] == "nodes" and _is_removal(row)
    }
    released = {answer.subject for answer in evidence.answers_to("releases")}
    for answer in evidence.answers_to("reserved"):
        row = dropped.get(answer.subject)
        if row is None and answer.subject not in evidence.reserved:
            yield f"{answer.subject} was reserved and never stored"
        if row is None or answer.subject in released or row["old"]["node_id"] in removed:
            continue
        if not is_expired(row["old"], row["at"]):
            yield f"reservation {answer.subject} was dropped without being released"


def a_change_of_a_reservation_is_made(evidence: Evidence) -> Iterator[str]:
    for answer in evidence.answers_to("changed"):
        updates = [
            row
            for row in evidence.journal
            if row["what"] == "reservations"
            and row["op"] == "update"
            and row["new"]["id"] == answer.subject
            and row["pid"] == answer.pid
            and answer.request.position < row["seq"] <= answer.position
        ]
        if not updates:
            yield f"the change of reservation {answer.subject} was acknowledged, and was not made"


def a_marked_attempt_takes_its_room_until_it_has_ended(evidence: Evidence) -> Iterator[str]:
    leased = {row["token"]: row["id"] for _, row in evidence.leases()}
    stopped = {
        row["new"]["token"]
        for row in evidence.journal
        if row["what"] == "stopping_attempts" and row["op"] == "insert"
    }
    for task, attempts in evidence.attempts.items():
        for attempt in attempts:
            if is_marked(attempt) and attempt["token"] not in stopped:
                yield f"task {task} was marked while it ran, and its room was free at once"
    ended = evidence.ended_incarnations()
    for row in evidence.journal:
        if row["what"] != "stopping_attempts" or row["op"] != "delete":
            continue
        old = row["old"]
        ref = AttemptRef(old["task_id"], old["attempt"], old["token"])
        is_over = ended.get(old["incarnation_id"], 2**62) < row["seq"]
        if leased[old["token"]] != old["task_id"]:
            yield f"token {old['token']} is not of task {old['task_id']}"
        if not is_over and ref not in evidence.acknowledged.tried_reports:
            yield f"the room of {ref} was given up while its node had it"


def nothing_stops_for_ever(evidence: Evidence) -> Iterator[str]:
    for row in evidence.stopping:
        yield f"task {row['task_id']} takes room for ever"


def nothing_is_reserved_on_a_removed_node(evidence: Evidence) -> Iterator[str]:
    removed = {row["new"]["id"] for row in evidence.journal if _is_removal(row)}
    for reservation in evidence.reserved.values():
        if reservation["node_id"] in removed:
            node = reservation["node_id"]
            yield f"{reservation['id']} is reserved on node {node}, which was removed"


def _is_removal(row: asyncpg.Record) -> bool:
    return bool(row["what"] == "nodes" and row["new"] and row["new"]["removed_at"])


INVARIANTS = [
    a_lease_takes_only_what_is_free,
    a_reservation_takes_only_what_is_free,
    a_reservation_lasts_until_it_is_released,
    a_change_of_a_reservation_is_made,
    a_marked_attempt_takes_its_room_until_it_has_ended,
    nothing_stops_for_ever,
    nothing_is_reserved_on_a_removed_node,
]
