"""Sanitizes the reports of agents so that they can be stored.

A report is trusted, but it may contain numbers that no column takes, or text with a NUL that a
task wrote. One such report must not block the others of its batch, so a value that cannot be
stored is replaced by the nearest one that can.
"""

import math

import msgspec

from duly import wire
from duly.model.task import Reason, Usage

MAX_DURATION_SECONDS = 100 * 365 * 86_400.0
"""100 years: no attempt has run for longer."""
MAX_USAGE = 1e15
MAX_INT4 = 2**31 - 1
MAX_INT8 = 2**63 - 1
MAX_MESSAGE_LENGTH = 2_000
MAX_REASON_BYTES = 16_384
NO_USAGE = Usage()


def sanitize(report: wire.AttemptReport) -> wire.AttemptReport:
    """Return the report with every value replaced that cannot be stored."""
    if _is_clean(report):
        return report
    return msgspec.structs.replace(
        report,
        exit_code=None
        if report.exit_code is None
        else max(-MAX_INT4, min(report.exit_code, MAX_INT4)),
        reason=None if report.reason is None else _sanitize_reason(report.reason),
        ran=None if report.ran is None else clamp(report.ran, MAX_DURATION_SECONDS),
        ended_ago=clamp(report.ended_ago, MAX_DURATION_SECONDS),
        usage=None if report.usage is None else _clamp_usage(report.usage),
        tail=report.tail[-wire.MAX_LOG_TAIL_BYTES :],
        log_size=max(0, min(report.log_size, MAX_INT8)),
    )


def _is_clean(report: wire.AttemptReport) -> bool:
    """Return True if every value can be stored, as in almost all reports; NaN is in no range."""
    usage = report.usage or NO_USAGE
    return (
        report.reason is None
        and (report.exit_code is None or abs(report.exit_code) <= MAX_INT4)
        and (report.ran is None or 0 <= report.ran <= MAX_DURATION_SECONDS)
        and 0 <= report.ended_ago <= MAX_DURATION_SECONDS
        and 0 <= usage.cpu_seconds <= MAX_USAGE
        and (usage.peak_memory_mb is None or 0 <= usage.peak_memory_mb <= MAX_USAGE)
        and 0 <= usage.wall_seconds <= MAX_USAGE
        and len(report.tail) <= wire.MAX_LOG_TAIL_BYTES
        and 0 <= report.log_size <= MAX_INT8
    )


def is_valid_ref(ref: wire.AttemptRef) -> bool:
    """Return True if the numbers of `ref` fit into their columns."""
    return 0 <= ref.task <= MAX_INT8 and 0 <= ref.attempt <= MAX_INT4 and 0 <= ref.token <= MAX_INT8


def _clamp_usage(usage: Usage) -> Usage:
    return Usage(
        cpu_seconds=clamp(usage.cpu_seconds, MAX_USAGE),
        peak_memory_mb=clamp_optional(usage.peak_memory_mb, MAX_USAGE),
        wall_seconds=clamp(usage.wall_seconds, MAX_USAGE),
    )


def clamp_optional(value: float | None, maximum: float) -> float | None:
    """Return the nearest value from 0 to `maximum`, or None."""
    return None if value is None else clamp(value, maximum)


def clamp(value: float, maximum: float) -> float:
    """Return the nearest value from 0 to `maximum`; NaN counts as 0."""
    return 0.0 if math.isnan(value) else max(0.0, min(value, maximum))


def _sanitize_reason(reason: Reason) -> Reason:
    """Return the reason without NULs, and without its details if it is too long."""
    encoded = msgspec.json.encode(reason)
    if len(encoded) > MAX_REASON_BYTES:
        encoded = msgspec.json.encode(
            Reason(reason.code[:100], reason.message[:MAX_MESSAGE_LENGTH])
        )
    return msgspec.json.decode(encoded.replace(rb"\u0000", rb"\ufffd"), type=Reason)
