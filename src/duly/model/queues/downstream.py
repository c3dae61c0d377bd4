"""Downstreams: the services that tasks call, and the limits of calling them.

A task names the keys of what it calls in `uses`. A key has limits once somebody has defined them: a
tenant for its own tasks, an administrator for those of everyone. Both definitions apply.
"""

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from duly.errors import Invalid

MAX_USES = 4
MAX_KEY_CHARS = 200
MAX_DOWNSTREAMS = 1000
"""Of one tenant, or for everyone."""
MAX_CONCURRENCY = 1_000_000
MAX_RATE = 1_000_000.0
MIN_RATE = 1 / 86_400
"""Per second: one task a day."""
MAX_RETRY_AFTER_SECONDS = 3600.0
"""A longer pause is cut to this: a report of one task must not stop all others for long."""
MAX_SHARED_RETRY_AFTER_SECONDS = 60.0
"""The same for limits that tenants share, where one tenant's report stops the others."""
THROTTLED_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h: with it, a task that uses a downstream says that it was throttled."""
RATE_UNITS = {"s": 1, "m": 60, "h": 3600}
RATE_PATTERN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)/(s|m|h)", re.ASCII)
RATE_EXAMPLE = "Try 100/s, 30/m or 1000/h."


class Downstream(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a key, and what throttling has left of them."""

    id: int
    tenant_id: int | None
    """None if all tenants share the limits."""
    key: str
    rate: float | None
    """Tasks that may start per second; None is no limit."""
    concurrency: int | None
    """Tasks that may run at once; None is no limit."""
    adaptive: bool
    factor: float = 1.0
    """The part of the limits that applies now."""
    throttled_at: datetime | None = None
    """When the limits were last halved."""
    retry_at: datetime | None = None
    """Nothing that uses the key starts before."""

    @property
    def current_rate(self) -> float | None:
        """Return the tasks that may start per second now."""
        return None if self.rate is None else self.rate * self.factor

    @property
    def current_concurrency(self) -> int | None:
        """Return the tasks that may run at once now: always one, so that it is tried again."""
        return None if self.concurrency is None else max(1, int(self.concurrency * self.factor))


def parse_rate(text: str, field: str = "rate") -> float:
    """Return the tasks per second of a rate like 100/s, 30/m or 1000/h."""
    matched = RATE_PATTERN.fullmatch(text.strip()) if len(text) <= 60 else None
    if matched is None:
        raise Invalid(field, f"{text.strip()[:60]!r} is not a rate. {RATE_EXAMPLE}")
    per_second = float(matched[1]) / RATE_UNITS[matched[2]]
    if not MIN_RATE <= per_second <= MAX_RATE:
        raise Invalid(field, f"{text.strip()!r} is not from one a day to 1000000/s.")
    return per_second


def format_rate(per_second: float) -> str:
    """Return a rate in the shortest unit that makes it a whole number, or with three digits."""
    for unit, seconds in RATE_UNITS.items():
        count = per_second * seconds
        if round(count) and abs(count - round(count)) < 1e-6 * count:
            return f"{round(count)}/{unit}"
    unit = next((unit for unit, seconds in RATE_UNITS.items() if per_second * seconds >= 1), "h")
    return f"{per_second * RATE_UNITS[unit]:.3g}/{unit}"


def check_key(key: str, field: str) -> str:
    """Return the key of a downstream; raises Invalid if it cannot be one."""
    if not key.strip():
        raise Invalid(field, "it is empty. Name what the task calls, such as stripe.")
    if len(key) > MAX_KEY_CHARS:
        raise Invalid(field, f"it has {len(key)} characters; at most {MAX_KEY_CHARS} are allowed.")
    if not key.isprintable():
        raise Invalid(field, "it contains a character that cannot be printed. Remove it.")
    return key


def check_uses(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys that a task uses, sorted and each once."""
    unique = sorted(set(keys))
    if len(unique) > MAX_USES:
        raise Invalid("uses", f"it has {len(unique)} keys; at most {MAX_USES} are allowed.")
    return tuple(check_key(key, "uses") for key in unique)
