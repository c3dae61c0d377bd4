"""Invariants of tenant limits: the rate bucket and the concurrency quota."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.interleavings.evidence import Evidence, is_lease
from tests.interleavings.tenants import BURST, ID, MAX_RUNNING, PER_SECOND

Row = dict[str, Any]


def exactly_the_stored_tasks_are_charged(evidence: Evidence) -> Iterator[str]:
    """Since the bucket is never overdrawn either, no window exceeds rate and burst."""
    charged = 0.0
    for row in evidence.journal:
        if row["what"] != "buckets":
            continue
        old, new = row["old"], row["new"]
        if old is None:
            if new["tokens"] != BURST:
                yield f"a new bucket has {new['tokens']} tokens"
            continue
        elapsed = (_time(new) - _time(old)).total_seconds()
        if elapsed < 0:
            yield f"a bucket was set back by {-elapsed} s"
        charged += min(BURST, old["tokens"] + elapsed * PER_SECOND) - new["tokens"]
        if new["tokens"] < -0.001:
            yield f"a bucket has {new['tokens']} tokens"
    stored = sum(row["tenant_id"] == ID for row in evidence.tasks.values())
    if abs(charged - stored) > 0.01:
        yield f"{stored} tasks were stored and {charged:g} charged"


def acknowledged_tasks_of_a_limited_tenant_are_stored(evidence: Evidence) -> Iterator[str]:
    for key, task in evidence.acknowledged.limited_submits:
        row = evidence.tasks.get(task)
        if row is None or row["idempotency_key"] != key:
            yield f"task {task} was acknowledged under {key} and is {row and dict(row)}"


def no_lease_exceeds_a_limit(evidence: Evidence) -> Iterator[str]:
    running: dict[int, Row] = {}
    max_running, is_suspended = MAX_RUNNING, False
    for row in evidence.journal:
        new = row["new"]
        if row["what"] == "plans":
            max_running = new["max_running"]
        elif row["what"] == "tenants":
            is_suspended = new["suspended_at"] is not None
        elif row["what"] == "live" and (new or row["old"])["tenant_id"] == ID:
            running.pop((new or row["old"])["id"], None)
            if new and new["status"] == "running":
                running[new["id"]] = new
            if not is_lease(row):
                continue
            if is_suspended:
                yield f"task {new['id']} was leased while its tenant was suspended"
            if len(running) > max_running:
                yield f"task {new['id']} was leased, and {len(running)} of {max_running} run"
            with_key = [task for task in running.values() if evidence.keys.get(task["shape_id"])]
            if evidence.keys.get(new["shape_id"]) and len(with_key) > 1:
                yield f"task {new['id']} was leased, and {len(with_key)} run under its key"


def _time(bucket: Row) -> datetime:
    return datetime.fromisoformat(bucket["filled_at"])


INVARIANTS = [
    exactly_the_stored_tasks_are_charged,
    acknowledged_tasks_of_a_limited_tenant_are_stored,
    no_lease_exceeds_a_limit,
]
