"""Keeps every tenant to the rate of its plan.

The tokens are in the database: a commit that stores tasks takes them in the same
transaction, so that the limit is exact over any number of servers, restarts and
failovers. What a commit leaves is remembered here for a moment, because nobody but
time adds to it: a bucket that was seen empty is refused without asking again.
"""

from collections.abc import Mapping
from datetime import timedelta
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

REFUSED = telemetry.TASKS_REFUSED.labels("tasks_per_hour")


class Remembered(msgspec.Struct):
    """A bucket, and when it was seen by this process's own clock."""

    bucket: Bucket
    seen: float

    def tokens_at(self, now: float) -> float:
        """Return how many tokens there are if nobody has taken any since."""
        return self.bucket.tokens_after(max(0.0, now - self.seen))


class Left(msgspec.Struct, frozen=True):
    """What is left to a tenant, as far as this server knows."""

    rate: Rate
    tokens: float


class RateLimiter:
    """Refuses what cannot be admitted, and charges what is stored in a transaction."""

    def __init__(self) -> None:
        self._remembered: dict[int, Remembered] = {}
        self._empty_until = 0.0
        """Nobody is refused from memory after that."""

    def check(self, credential: Credential, tasks: int = 1) -> None:
        """Refuse at once what a bucket that was just seen has no tokens for.

        Only for tasks that are certainly new: repeats are free, so whoever shows an idempotency
        key has to be looked up first.
        """
        error = self.refusal(credential, tasks)
        if error is not None:
            if isinstance(error, LimitExceeded):
                count_refused()
            raise error

    def refusal(self, credential: Credential, tasks: int = 1) -> LimitExceeded | Invalid | None:
        """Return what `check` would raise, for a caller who counts by itself what it refuses."""
        plan = credential.plan
        # What is stored one by one, by far the most, is asked about twice: early, and for certain.
        if plan.burst is None or (tasks == 1 and self.is_calm):
            return None
        if tasks > plan.burst:
            return refusal_for_good(plan, tasks)
        left = self._short_of(credential, tasks)
        if left is None:
            return None
        after = (tasks - left.tokens) / left.rate.per_second
        return refusal(left.rate, timedelta(seconds=after))

    @property
    def is_calm(self) -> bool:
        """Say whether nobody's bucket is known to be empty, which is quickly found out."""
        return clock.monotonic() > self._empty_until

    def _short_of(self, credential: Credential, tasks: int) -> Left | None:
        """Return what is left where that is known to be too little; made for speed."""
        remembered = self._remembered.get(credential.tenant_id)
        if remembered is None:
            return None
        now, rate, plan = clock.monotonic(), remembered.bucket.rate, credential.plan
        if now - remembered.seen > REMEMBERED:
            return None
        if rate.burst != plan.burst or rate.tasks_per_hour != plan.tasks_per_hour:
            return None
        tokens = remembered.tokens_at(now)
        return Left(rate, tokens) if int(tokens) < tasks else None

    def note(self, seen: Mapping[int, Bucket | None]) -> None:
        """Remember what a commit left in buckets, by tenant."""
        at = clock.monotonic()
        for tenant_id, bucket in seen.items():
            self._remembered.pop(tenant_id, None)
            if bucket is not None:
                self._remembered[tenant_id] = Remembered(bucket, at)
                if bucket.whole < 1:
                    self._empty_until = at + REMEMBERED
        while len(self._remembered) > MOST:
            self._remembered.pop(next(iter(self._remembered)))

    def left(self, credential: Credential) -> Left | None:
        """Return what is left in a tenant's bucket, as far as this server has seen."""
        remembered = self._remembered.get(credential.tenant_id)
        if remembered is None or credential.plan.burst is None:
            return None
        return Left(remembered.bucket.rate, remembered.tokens_at(clock.monotonic()))

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
        left = self.require(credential, bucket, tasks)
        if tasks:
            await buckets.settle(conn, credential.tenant_id, left)
        return left

    def require(self, credential: Credential, bucket: Bucket, tasks: int) -> Bucket:
        """Return what is left of a locked bucket after so many tasks, or raise LimitExceeded."""
        match admission.decide(bucket, tasks):
            case Admit(left):
                return left
            case RefuseForGood():
                raise refusal_for_good(credential.plan, tasks, bucket.rate)
            case Refuse(after):
                self.note({credential.tenant_id: bucket})
                count_refused()
                raise refusal(bucket.rate, after)


def rate_of(plan: Plan) -> Rate | None:
    """Return the rate of a plan; None when it has none."""
    if plan.tasks_per_hour is None or plan.burst is None:
        return None
    return Rate(plan.tasks_per_hour, plan.burst)


def count_refused(requests: int = 1) -> None:
    """Count requests that were refused because a bucket was empty."""
    REFUSED.inc(requests)


def say_exceeded(tasks_per_hour: int | None, burst: int | None) -> str:
    """Return the sentence that says how many tasks a plan admits."""
    tasks = "1 task" if tasks_per_hour == 1 else f"{tasks_per_hour} tasks"
    return f"Limit exceeded: {tasks} per hour, and at most {burst} at once."


def refusal(rate: Rate, after: timedelta) -> LimitExceeded:
    """Return what a tenant is told whose bucket is empty."""
    return LimitExceeded(
        f"{say_exceeded(rate.tasks_per_hour, rate.burst)} "
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
