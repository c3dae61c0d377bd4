"""Limits the rate of each tenant's submissions with a token bucket.

The bucket is in the database: the transaction that stores tasks takes their tokens, so the limit
is exact over any number of servers, restarts and failovers. Each server caches the buckets that
its commits leave for a moment. Only time adds tokens, so a tenant whose cached bucket is empty is
refused without a query.

Decision: docs/adr/0012-buckets-charged-on-insert.md.
"""

from collections.abc import Mapping
from datetime import timedelta
from math import ceil

import msgspec

from duly import clock, telemetry
from duly.errors import Invalid, LimitExceeded
from duly.model.bucket import Bucket, Rate
from duly.model.tenant import Credential, Plan
from duly.model.wording import count_of
from duly.policy import admission
from duly.policy.admission import Admit, Refuse, RefuseForGood
from duly.store.accounts import buckets
from duly.store.database import Connection

CACHE_SECONDS = 1.0
"""How long submissions are refused from the cache, however slowly the bucket fills."""
MAX_CACHED_BUCKETS = 10_000
"""Beyond that the oldest are evicted."""

REFUSED_BY_RATE = telemetry.TASKS_REFUSED.labels("tasks_per_hour")


class CachedBucket(msgspec.Struct):
    """A bucket, and when a commit left it so, by this process's monotonic clock."""

    bucket: Bucket
    cached_at: float

    def tokens_at(self, now: float) -> float:
        """Return the number of tokens if none was taken since."""
        return self.bucket.tokens_after(max(0.0, now - self.cached_at))


class RemainingTokens(msgspec.Struct, frozen=True):
    """The tokens in a tenant's bucket, as far as this server knows."""

    rate: Rate
    tokens: float


class RateLimiter:
    """Refuses submissions from cached buckets, and charges stored tasks in a transaction."""

    def __init__(self) -> None:
        self._cache: dict[int, CachedBucket] = {}
        self._empty_until = 0.0
        """Until then some cached bucket may be empty."""

    def check(self, credential: Credential, tasks: int = 1) -> None:
        """Raise LimitExceeded if the cached bucket has too few tokens, or Invalid if it never can.

        Only for tasks that are certainly new: duplicates are free, so a submission with an
        idempotency key has to be looked up first.
        """
        error = self.violation(credential, tasks)
        if error is not None:
            if isinstance(error, LimitExceeded):
                count_refused()
            raise error

    def violation(self, credential: Credential, tasks: int = 1) -> LimitExceeded | Invalid | None:
        """Return the error that `check` would raise, for a caller that counts its own refusals."""
        plan = credential.plan
        # Single tasks, by far the most submissions, are checked again by their commit.
        if plan.burst is None or (tasks == 1 and self.has_no_empty_bucket):
            return None
        if tasks > plan.burst:
            return burst_exceeded(plan, tasks)
        remaining = self._too_few_tokens(credential, tasks)
        if remaining is None:
            return None
        seconds = (tasks - remaining.tokens) / remaining.rate.per_second
        return rate_exceeded(remaining.rate, timedelta(seconds=seconds))

    @property
    def has_no_empty_bucket(self) -> bool:
        """Return True if no cached bucket of any tenant is empty: a cheap check to do first."""
        return clock.monotonic() > self._empty_until

    def _too_few_tokens(self, credential: Credential, tasks: int) -> RemainingTokens | None:
        """Return the remaining tokens if they are known to be too few; None otherwise."""
        cached = self._cache.get(credential.tenant_id)
        if cached is None:
            return None
        now, rate, plan = clock.monotonic(), cached.bucket.rate, credential.plan
        if now - cached.cached_at > CACHE_SECONDS:
            return None
        if rate.burst != plan.burst or rate.tasks_per_hour != plan.tasks_per_hour:
            return None
        tokens = cached.tokens_at(now)
        return RemainingTokens(rate, tokens) if int(tokens) < tasks else None

    def observe(self, buckets_left: Mapping[int, Bucket | None]) -> None:
        """Cache the buckets that a commit has left, by tenant."""
        now = clock.monotonic()
        for tenant_id, bucket in buckets_left.items():
            self._cache.pop(tenant_id, None)
            if bucket is not None:
                self._cache[tenant_id] = CachedBucket(bucket, now)
                if bucket.whole_tokens < 1:
                    self._empty_until = now + CACHE_SECONDS
        while len(self._cache) > MAX_CACHED_BUCKETS:
            self._cache.pop(next(iter(self._cache)))

    def remaining(self, credential: Credential) -> RemainingTokens | None:
        """Return the tokens in a tenant's bucket, as far as this server knows."""
        cached = self._cache.get(credential.tenant_id)
        if cached is None or credential.plan.burst is None:
            return None
        return RemainingTokens(cached.bucket.rate, cached.tokens_at(clock.monotonic()))

    async def lock(self, conn: Connection, credential: Credential) -> Bucket | None:
        """Lock and fill a tenant's bucket; None if its plan has no rate.

        Call it before locking any idempotency key: the order of locks prevents deadlocks.
        """
        if rate_of(credential.plan) is None:
            return None
        locked = await buckets.lock(conn, credential.tenant_id)
        return None if locked is None else admission.refill(locked.bucket, locked.now)

    async def charge(
        self, conn: Connection, credential: Credential, bucket: Bucket, tasks: int
    ) -> Bucket:
        """Store a locked bucket without the tokens of all the tasks, or raise LimitExceeded."""
        left = self.deduct(credential, bucket, tasks)
        if tasks:
            await buckets.write(conn, credential.tenant_id, left)
        return left

    def deduct(self, credential: Credential, bucket: Bucket, tasks: int) -> Bucket:
        """Return a locked bucket without the tokens of the tasks, or raise LimitExceeded."""
        match admission.decide(bucket, tasks):
            case Admit(left):
                return left
            case RefuseForGood():
                raise burst_exceeded(credential.plan, tasks, bucket.rate)
            case Refuse(retry_after):
                self.observe({credential.tenant_id: bucket})
                count_refused()
                raise rate_exceeded(bucket.rate, retry_after)


def rate_of(plan: Plan) -> Rate | None:
    """Return the rate of a plan; None when it has none."""
    if plan.tasks_per_hour is None or plan.burst is None:
        return None
    return Rate(plan.tasks_per_hour, plan.burst)


def count_refused(requests: int = 1) -> None:
    """Count requests that were refused for an empty bucket."""
    REFUSED_BY_RATE.inc(requests)


def exceeded_message(tasks_per_hour: int | None, burst: int | None) -> str:
    """Return the sentence that names the limit."""
    tasks = count_of(tasks_per_hour or 0, "task")
    return f"Limit exceeded: the plan allows {tasks} per hour, and at most {burst} at once."


def rate_exceeded(rate: Rate, retry_after: timedelta) -> LimitExceeded:
    """Return the error for a bucket with too few tokens."""
    return LimitExceeded(
        f"{exceeded_message(rate.tasks_per_hour, rate.burst)} "
        f"Try again in {max(1, ceil(retry_after.total_seconds()))} s.",
        retry_after,
        limit="tasks_per_hour",
        tasks_per_hour=rate.tasks_per_hour,
        burst=rate.burst,
    )


def burst_exceeded(plan: Plan, tasks: int, rate: Rate | None = None) -> Invalid:
    """Return the error for a batch larger than the burst, and count the refusal."""
    telemetry.TASKS_REFUSED.labels("burst").inc()
    burst = plan.burst if rate is None else rate.burst
    return Invalid(
        "tasks",
        f"{tasks} are more than the {burst} that the plan {plan.name!r} takes at once. Submit "
        "them in parts.",
        limit="burst",
        burst=burst,
    )
