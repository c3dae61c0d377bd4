"""Invariants of capacity: leases and reservations fit their node at every step of the journal.

Only CPU is looked at; it stands for the other kinds.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import asyncpg

from duly.wire import AttemptRef
from tests.interleavings.evidence import Evidence, is_lease, is_marked

Row = dict[str, Any]


class CapacityTracker:
    """Goes through the journal row by row."""

    def __init__(self, needs: dict[int, int]) -> None:
        self._needs = needs
        self._capacity: dict[int, int] = {}
        self._override: dict[int, int] = {}
        self._lives_on: dict[int, int] = {}
        self._running: dict[int, Row] = {}
        self._stopping: dict[int, Row] = {}
        self._reserved: dict[int, Row] = {}

    def take(self, row: asyncpg.Record) -> None:
        """Take in what was written."""
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
                self._lives_on[new["node_id"]] = new["id"]
            case "nodes":
                self._override.pop(new["id"], None)
                if "cpu_milli" in new["capacity_override"]:
                    self._override[new["id"]] = new["capacity_override"]["cpu_milli"]
            case "reservations" if new:
                self._reserved[new["id"]] = new
            case "reservations":
                self._reserved.pop(old["id"])

    def overbooked(self, node: int, incarnation: int, at: datetime) -> str | None:
        """Say what is too much on a node, if anything."""
        has = self._override.get(node, self._capacity[incarnation])
        runs = sum(
            self._needs[row["shape_id"]]
            for row in (*self._running.values(), *self._stopping.values())
            if row["incarnation_id"] == incarnation
        )
        kept = sum(
            row["resources"]["cpu_milli"]
            for row in self._reserved.values()
            if row["node_id"] == node and not is_past(row, at)
        )
        if runs + kept <= has:
            return None
        return f"node {node} has {has}, of which {runs} are in use and {kept} reserved"

    def incarnation_of(self, node: int) -> int | None:
        """Return the latest incarnation of a node."""
        return self._lives_on.get(node)


def is_past(reservation: Row, at: datetime) -> bool:
    """Say whether a reservation has expired."""
    until = reservation["expires_at"]
    return until is not None and datetime.fromisoformat(until) <= at


def a_lease_takes_only_what_is_free(seen: Evidence) -> Iterator[str]:
    room = CapacityTracker(seen.needs)
    for row in seen.journal:
        room.take(row)
        if is_lease(row):
            new = row["new"]
            too_much = room.overbooked(new["node_id"], new["incarnation_id"], row["at"])
            if too_much:
                yield f"task {new['id']} was leased, and {too_much}"


def a_reservation_takes_only_what_is_free(seen: Evidence) -> Iterator[str]:
    room = CapacityTracker(seen.needs)
    for row in seen.journal:
        room.take(row)
        if row["what"] == "reservations" and _grows(row):
            node = row["new"]["node_id"]
            incarnation = room.incarnation_of(node)
            too_much = incarnation and room.overbooked(node, incarnation, row["at"])
            if too_much:
                yield f"{row['new']['id']} was reserved, and {too_much}"


def _grows(row: asyncpg.Record) -> bool:
    if not row["new"]:
        return False
    before = row["old"]["resources"]["cpu_milli"] if row["old"] else 0
    return bool(row["new"]["resources"]["cpu_milli"] > before)


def a_reservation_lasts_until_it_is_released(seen: Evidence) -> Iterator[str]:
    gone: dict[int, asyncpg.Record] = {
        row["old"]["id"]: row
        for row in seen.journal
        if row["what"] == "reservations" and row["op"] == "delete"
    }
    removed = {
        row["new"]["id"] for row in seen.journal if row["what"] == "nodes" and _is_removal(row)
    }
    released = {answer.about for answer in seen.told_of("releases")}
    for told in seen.told_of("reserved"):
        row = gone.get(told.about)
        if row is None and told.about not in seen.reserved:
            yield f"{told.about} was reserved and never stored"
        if row is None or told.about in released or row["old"]["node_id"] in removed:
            continue
        if not is_past(row["old"], row["at"]):
            yield f"reservation {told.about} is gone, and nobody released it"


def a_change_of_a_reservation_is_made(seen: Evidence) -> Iterator[str]:
    for told in seen.told_of("changed"):
        mine = [
            row
            for row in seen.journal
            if row["what"] == "reservations"
            and row["op"] == "update"
            and row["new"]["id"] == told.about
            and row["pid"] == told.pid
            and told.asked.place < row["seq"] <= told.place
        ]
        if not mine:
            yield f"reservation {told.about} was said to be changed, and was not"


def a_marked_attempt_takes_its_room_until_it_has_ended(seen: Evidence) -> Iterator[str]:
    leased = {row["token"]: row["id"] for _, row in seen.leases()}
    stopped = {
        row["new"]["token"]
        for row in seen.journal
        if row["what"] == "stopping_attempts" and row["op"] == "insert"
    }
    for task, attempts in seen.attempts.items():
        for one in attempts:
            if is_marked(one) and one["token"] not in stopped:
                yield f"task {task} was marked while it ran, and its room was free at once"
    ended = seen.ended_incarnations()
    for row in seen.journal:
        if row["what"] != "stopping_attempts" or row["op"] != "delete":
            continue
        old = row["old"]
        ref = AttemptRef(old["task_id"], old["attempt"], old["token"])
        is_over = ended.get(old["incarnation_id"], 2**62) < row["seq"]
        if leased[old["token"]] != old["task_id"]:
            yield f"token {old['token']} is not of task {old['task_id']}"
        if not is_over and ref not in seen.told.tried_reports:
            yield f"the room of {ref} was given up while its node had it"


def nothing_stops_for_ever(seen: Evidence) -> Iterator[str]:
    for row in seen.stopping:
        yield f"task {row['task_id']} takes room for ever"


def nothing_is_reserved_on_a_removed_node(seen: Evidence) -> Iterator[str]:
    removed = {row["new"]["id"] for row in seen.journal if _is_removal(row)}
    for one in seen.reserved.values():
        if one["node_id"] in removed:
            yield f"{one['id']} is reserved on node {one['node_id']}, which was removed"


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
