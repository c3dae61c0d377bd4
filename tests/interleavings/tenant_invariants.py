"""Invariants of tenant limits: the rate bucket and the concurrency quota."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.interleavings.evidence import Evidence, is_lease
from tests.interleavings.tenants import BURST, ID, MOST, PER_SECOND

Row = dict[str, Any]


def what_is_stored_is_charged_and_nothing_else(seen: Evidence) -> Iterator[str]:
    """With a bucket that is never overdrawn, it follows that no window has too many."""
    charged = 0.0
    for row in seen.journal:
        if row["what"] != "buckets":
            continue
        old, new = row["old"], row["new"]
        if old is None:
            if new["tokens"] != BURST:
                yield f"a new bucket has {new['tokens']} tokens"
            continue
        passed = (_time(new) - _time(old)).total_seconds()
        if passed < 0:
            yield f"a bucket was set back by {-passed} s"
        charged += min(BURST, old["tokens"] + passed * PER_SECOND) - new["tokens"]
        if new["tokens"] < -0.001:
            yield f"a bucket has {new['tokens']} tokens"
    stored = sum(row["tenant_id"] == ID for row in seen.tasks.values())
    if abs(charged - stored) > 0.01:
        yield f"{stored} tasks were stored and {charged:g} charged"


def what_a_limited_tenant_was_told_is_stored(seen: Evidence) -> Iterator[str]:
    for key, task in seen.told.small:
        row = seen.tasks.get(task)
        if row is None or row["idempotency_key"] != key:
            yield f"task {task} was acknowledged under {key} and is {row and dict(row)}"


def nothing_is_leased_beyond_a_limit(seen: Evidence) -> Iterator[str]:
    running: dict[int, Row] = {}
    most, is_suspended = MOST, False
    for row in seen.journal:
        new = row["new"]
        if row["what"] == "plans":
            most = new["max_running"]
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
            if len(running) > most:
                yield f"task {new['id']} was leased, and {len(running)} run of at most {most}"
            under = [one for one in running.values() if seen.keys.get(one["shape_id"])]
            if seen.keys.get(new["shape_id"]) and len(under) > 1:
                yield f"task {new['id']} was leased, and {len(under)} run under its key"


def _time(bucket: Row) -> datetime:
    return datetime.fromisoformat(bucket["filled_at"])


INVARIANTS = [
    what_is_stored_is_charged_and_nothing_else,
    what_a_limited_tenant_was_told_is_stored,
    nothing_is_leased_beyond_a_limit,
]
