"""Prometheus metrics: counters, gauges and histograms.

Names and labels are few and fixed: a metric with labels from tenants would cost more than what it
measures.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from duly import clock

REGISTRY = CollectorRegistry()

TASKS_SUBMITTED = Counter("duly_tasks_submitted", "Tasks stored.", registry=REGISTRY)
TASKS_REFUSED = Counter(
    "duly_tasks_refused",
    "Submissions refused because a limit of the tenant's plan was used up.",
    ["limit"],
    registry=REGISTRY,
)
TASKS_OVERDUE = Counter(
    "duly_tasks_overdue",
    "Tasks that waited past their delay tolerance, by the queue that they were submitted to.",
    ["queue", "plan"],
    registry=REGISTRY,
)
ATTEMPTS_LEASED = Counter("duly_attempts_leased", "Attempts given to nodes.", registry=REGISTRY)
ATTEMPTS_ENDED = Counter(
    "duly_attempts_ended", "Attempts that ended.", ["outcome"], registry=REGISTRY
)
REPORTS_STALE = Counter(
    "duly_reports_stale", "Reports refused because the attempt was given away.", registry=REGISTRY
)
REQUESTS_SHED = Counter(
    "duly_requests_shed",
    "Requests refused because the server had no room for them.",
    ["bulkhead"],
    registry=REGISTRY,
)
TICKS_FAILED = Counter(
    "duly_ticks_failed", "Ticks that ended in an error.", ["component"], registry=REGISTRY
)
TICK_SECONDS = Histogram(
    "duly_tick_seconds",
    "How long a tick takes.",
    ["component"],
    registry=REGISTRY,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
)
COMMIT_SECONDS = Histogram(
    "duly_submit_commit_seconds",
    "How long a group of submits takes to commit.",
    registry=REGISTRY,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
)
REPAIRS = Counter("duly_repairs", "Things put right by the audit.", ["kind"], registry=REGISTRY)
IS_LEADER = Gauge("duly_leads", "1 while this server leads.", registry=REGISTRY)


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observe how long the block takes."""
    before = clock.monotonic()
    try:
        yield
    finally:
        histogram.observe(clock.monotonic() - before)
