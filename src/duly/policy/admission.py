"""Decides whether tasks are admitted, by their tenant's token bucket.

In any time window a tenant stores at most its burst plus what the rate refills in that
time. The statement that stores single tasks does the same arithmetic in SQL
(`insert_tasks`); a test compares the two.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from duly.model.bucket import Bucket


@dataclass(frozen=True, slots=True)
class Admit:
    """The tasks may be stored; `bucket` is what remains."""

    bucket: Bucket


@dataclass(frozen=True, slots=True)
class Refuse:
    """Too few tokens for now; enough `after` this time, unless other requests take them."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class RefuseForGood:
    """More tasks than the burst: the bucket never holds enough tokens."""


Decision = Admit | Refuse | RefuseForGood


def refill(bucket: Bucket, now: datetime) -> Bucket:
    """Return the bucket at `now`, with the tokens added since its last refill.

    When the clock was set back no token is removed and none is added twice: the bucket does not
    refill until the clock has caught up.
    """
    tokens = bucket.tokens_after(max(0.0, (now - bucket.at).total_seconds()))
    return msgspec.structs.replace(bucket, tokens=tokens, at=max(now, bucket.at))


def decide(bucket: Bucket, tasks: int) -> Decision:
    """Decide whether this many tasks may be stored: all of them, or none."""
    if tasks > bucket.rate.burst:
        return RefuseForGood()
    if tasks > bucket.whole_tokens:
        return Refuse(timedelta(seconds=bucket.seconds_until(tasks)))
    return Admit(msgspec.structs.replace(bucket, tokens=bucket.tokens - tasks))
