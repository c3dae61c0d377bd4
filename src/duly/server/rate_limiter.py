"""Keeps every tenant to the rate of its plan.

The tokens are in the database: a commit that stores tasks takes them in the same
transaction, so that the limit is exact over any number of servers, restarts and
failovers. What a commit leaves is remembered here for a moment, because nobody but
time adds to it: a bucket that was seen empty is refused without asking again.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil

import msgspec

from duly import clock, telemetry
from duly.errors import Invalid, LimitExceeded
from duly.model.bucket import Bucket, Rate
from duly.model.tenant import Credential, Plan
from duly.policy import admission
from duly.policy.admission import Admit, Refuse, RefuseForGood
from duly.store import buckets
from duly.store.database import Connection

REMEMBERED = 1.0
"""Seconds for which a bucket is not looked at again, however slowly it fills."""
MOST = 10_000
"""How many buckets are remembered at once; beyond that the oldest are forgotten."""


class Remembered(msgspec.Struct, frozen=True):
    """A bucket, and when it was seen by this process's own clock."""

    bucket: Bucket
    seen: float


class RateLimiter:
    """Refuses what cannot be admitted, and charges what is stored in a transaction."""

    def __init__(self) -> None:
        self._remembered: dict[int, Remembered] = {}

    def check(self, credential: Credential, tasks: int = 1) -> None:
        """Refuse at once what a bucket that was just seen has no tokens for.

        Only for tasks that are certainly new: repeats are free, so whoever shows an idempotency
        key has to be looked up first.
        """
        rate = rate_of(credential.plan)
        if rate is None:
            return
        if tasks > rate.burst:
            raise refusal_for_good(credential.plan, tasks)
        remembered = self._remembered.get(credential.tenant_id)
        if remembered is None or remembered.bucket.rate != rate:
            return
        passed = clock.monotonic() - remembered.seen
        if passed > REMEMBERED:
            return
        bucket = _later(remembered.bucket, passed)
        if bucket.whole < tasks:
            raise refusal(bucket, timedelta(seconds=bucket.seconds_until(tasks)))

    def note(self, seen: Mapping[int, Bucket | None]) -> None:
        """Remember what a commit left in buckets, by tenant."""
        at = clock.monotonic()
        for tenant_id, bucket in seen.items():
            self._remembered.pop(tenant_id, None)
            if bucket is not None:
                self._remembered[tenant_id] = Remembered(bucket, at)
        while len(self._remembered) > MOST:
            self._remembered.pop(next(iter(self._remembered)))

    def recall(self, credential: Credential) -> Bucket | None:
        """Return what is left in a tenant's bucket, as far as this server has seen."""
        remembered = self._remembered.get(credential.tenant_id)
        if remembered is None or rate_of(credential.plan) is None:
            return None
        return _later(remembered.bucket, clock.monotonic() - remembered.seen)

    async def lock(self, conn: Connection, credential: Credential) -> Bucket | None:
        """Lock the bucket of a tenant, before any idempotency key; None if it has no rate."""
        if rate_of(credential.plan) is None:
            return None
        found = await buckets.lock(conn, credential.tenant_id)
        return None if found is None else admission.fill(found.bucket, found.now)

    async def charge(
        self, conn: Connection, credential: Credential, bucket: Bucket, tasks: int
    ) -> Bucket:
        """Take tokens out of a locked bucket for all of the tasks, or raise LimitExceeded."""
        match admission.decide(bucket, tasks):
            case Admit(left):
                if tasks:
                    await buckets.settle(conn, credential.tenant_id, left)
                return left
            case Refuse(after):
                self.note({credential.tenant_id: bucket})
                raise refusal(bucket, after)
            case RefuseForGood():
                raise refusal_for_good(credential.plan, tasks, bucket.rate)


def rate_of(plan: Plan) -> Rate | None:
    """Return the rate of a plan; None when it has none."""
    if plan.tasks_per_hour is None or plan.burst is None:
        return None
    return Rate(plan.tasks_per_hour, plan.burst)


def refusal(bucket: Bucket, after: timedelta) -> LimitExceeded:
    """Return what a tenant is told whose bucket is empty."""
    telemetry.TASKS_REFUSED.labels("tasks_per_hour").inc()
    rate = bucket.rate
    return LimitExceeded(
        f"Limit exceeded: {rate.tasks_per_hour} tasks per hour, and at most {rate.burst} at once. "
        f"Try again in {max(1, ceil(after.total_seconds()))} s.",
        after,
        limit="tasks_per_hour",
        tasks_per_hour=rate.tasks_per_hour,
        burst=rate.burst,
    )


def refusal_for_good(plan: Plan, tasks: int, rate: Rate | None = None) -> Invalid:
    """Return what a tenant is told whose batch no bucket of its plan can ever hold."""
    telemetry.TASKS_REFUSED.labels("burst").inc()
    burst = plan.burst if rate is None else rate.burst
    return Invalid(
        "tasks",
        f"Limit exceeded: a batch of {tasks} new tasks is larger than the {burst} that the plan "
        f"{plan.name!r} admits at once; submit it in parts.",
        limit="burst",
        burst=burst,
    )


def _later(bucket: Bucket, passed: float) -> Bucket:
    later: datetime = bucket.at + timedelta(seconds=max(0.0, passed))
    return admission.fill(bucket, later)
