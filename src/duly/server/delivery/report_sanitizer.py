"""Makes what agents report fit to be stored.

A report is believed, but it may hold numbers that no column takes, or text with a NUL
from whatever a task wrote. One such report must not keep the others of its batch from
being finished, so what cannot be stored is bent to the nearest that can.
"""

import math

import msgspec

from duly import wire
from duly.model.task import Reason, Usage

LONGEST = 100 * 365 * 86_400.0
"""Seconds; no attempt has run for longer than this."""
MOST = 1e15
INT4 = 2**31 - 1
INT8 = 2**63 - 1
MESSAGE_LENGTH = 2_000
REASON_BYTES = 16_384
NO_USAGE = Usage()


def storable(report: wire.AttemptReport) -> wire.AttemptReport:
    """Return the report with every value within what can be stored."""
    if _is_ordinary(report):
        return report
    return msgspec.structs.replace(
        report,
        exit_code=None if report.exit_code is None else max(-INT4, min(report.exit_code, INT4)),
        reason=None if report.reason is None else _reason(report.reason),
        ran=None if report.ran is None else within(report.ran, LONGEST),
        ended_ago=within(report.ended_ago, LONGEST),
        usage=None if report.usage is None else _usage(report.usage),
        tail=report.tail[-wire.TAIL_BYTES :],
        log_size=max(0, min(report.log_size, INT8)),
    )


def _is_ordinary(report: wire.AttemptReport) -> bool:
    """Say whether nothing of it has to be bent, as of almost all; NaN is within no bounds."""
    usage = report.usage or NO_USAGE
    return (
        report.reason is None
        and (report.exit_code is None or abs(report.exit_code) <= INT4)
        and (report.ran is None or 0 <= report.ran <= LONGEST)
        and 0 <= report.ended_ago <= LONGEST
        and 0 <= usage.cpu_seconds <= MOST
        and 0 <= usage.peak_memory_mb <= MOST
        and 0 <= usage.wall_seconds <= MOST
        and len(report.tail) <= wire.TAIL_BYTES
        and 0 <= report.log_size <= INT8
    )


def is_possible(ref: wire.AttemptRef) -> bool:
    """Say whether there could be such an attempt at all."""
    return 0 <= ref.task <= INT8 and 0 <= ref.attempt <= INT4 and 0 <= ref.token <= INT8


def _usage(usage: Usage) -> Usage:
    return Usage(
        cpu_seconds=within(usage.cpu_seconds, MOST),
        peak_memory_mb=within(usage.peak_memory_mb, MOST),
        wall_seconds=within(usage.wall_seconds, MOST),
    )


def within(value: float, most: float) -> float:
    """Return the nearest value from 0 to `most`; what is not a number counts as 0."""
    return 0.0 if math.isnan(value) else max(0.0, min(value, most))


def _reason(reason: Reason) -> Reason:
    """Return the reason without NULs, and without its details if it is far too long."""
    encoded = msgspec.json.encode(reason)
    if len(encoded) > REASON_BYTES:
        encoded = msgspec.json.encode(Reason(reason.code[:100], reason.message[:MESSAGE_LENGTH]))
    return msgspec.json.decode(encoded.replace(rb"\u0000", rb"\ufffd"), type=Reason)
