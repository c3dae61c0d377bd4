"""Decides whether tasks may be stored, by the tokens in their tenant's bucket.

In no window are more tasks stored than the burst and what the rate gives in that
time. The statement that stores single tasks does the same arithmetic in SQL
(`insert_tasks`), and a test holds the two together.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from duly.model.bucket import Bucket


@dataclass(frozen=True, slots=True)
class Admit:
    """The tasks may be stored; `bucket` is what is left."""

    bucket: Bucket


@dataclass(frozen=True, slots=True)
class Refuse:
    """There are too few tokens now, and enough `after` that time if nobody else takes them."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class RefuseForGood:
    """There are more tasks than the bucket ever holds."""


Decision = Admit | Refuse | RefuseForGood


def fill(bucket: Bucket, now: datetime) -> Bucket:
    """Return the bucket as it is now, with what came since it was last looked at.

    Nothing is taken away when the clock was set back: what has been counted once is not
    counted again, so the bucket stands still until the clock has caught up.
    """
    tokens = bucket.tokens_after(max(0.0, (now - bucket.at).total_seconds()))
    return msgspec.structs.replace(bucket, tokens=tokens, at=max(now, bucket.at))


def decide(bucket: Bucket, tasks: int) -> Decision:
    """Say whether so many tasks may be stored: all of them, or none."""
    if tasks > bucket.rate.burst:
        return RefuseForGood()
    if tasks > bucket.whole:
        return Refuse(timedelta(seconds=bucket.seconds_until(tasks)))
    return Admit(msgspec.structs.replace(bucket, tokens=bucket.tokens - tasks))
