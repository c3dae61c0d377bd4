"""The part of a request that says how a task is retried, and its completion into `RetryTerms`.

What is left out stays unset rather than being filled in: the server's settings decide it when an
attempt fails, so a change of them reaches tasks that are already stored.
"""

from typing import Any

import msgspec

from duly.duration import format_duration, parse_duration
from duly.errors import Invalid
from duly.model.task import MAX_RETRY_DELAY, RetryTerms

MAX_EXIT_CODES = 255


class RetryRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How long to wait before a retry, and which exit codes are not retried."""

    delay: float | str | None = None
    """Wait before the first retry; it doubles with each further one."""
    max_delay: float | str | None = None
    no_retry_exit_codes: list[int] | None = None


def complete_retry(asked: RetryRequest | None) -> RetryTerms | None:
    """Check how a task is to be retried; None if nothing was requested."""
    if asked is None:
        return None
    delay = _delay(asked.delay, "retry.delay")
    max_delay = _delay(asked.max_delay, "retry.max_delay")
    if delay is not None and max_delay is not None and max_delay < delay:
        raise Invalid(
            "retry.max_delay", "it is shorter than retry.delay. Make it at least as long."
        )
    codes = _exit_codes(asked.no_retry_exit_codes or [])
    terms = RetryTerms(delay=delay, max_delay=max_delay, no_retry_exit_codes=codes)
    return None if terms == RetryTerms() else terms


def retry_as_request(terms: RetryTerms | None) -> dict[str, Any] | None:
    """Return `terms` as the field of a request from which they can be completed again."""
    return None if terms is None else msgspec.structs.asdict(terms)


def _delay(value: float | str | None, field: str) -> float | None:
    if value is None:
        return None
    delay = parse_duration(value, field)
    if delay > MAX_RETRY_DELAY:
        longest = format_duration(MAX_RETRY_DELAY)
        raise Invalid(field, f"{format_duration(delay)} is too long. Use at most {longest}.")
    return delay.total_seconds()


def _exit_codes(codes: list[int]) -> list[int]:
    field = "retry.no_retry_exit_codes"
    for code in codes:
        if not 1 <= code <= MAX_EXIT_CODES:
            raise Invalid(field, f"{code} is not an exit code from 1 to {MAX_EXIT_CODES}.")
    return sorted(set(codes))
