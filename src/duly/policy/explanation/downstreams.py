"""Explains that a waiting task waits for a downstream that it calls."""

from datetime import timedelta
from typing import Any

from duly.model.queues.downstream import Downstream, format_rate
from duly.model.task import Reason
from duly.model.wording import count_of
from duly.policy.budget.downstream import is_closed, slots_left
from duly.policy.explanation.facts import Facts
from duly.policy.explanation.timestamps import timestamp

CODE = "downstream_limit"


def closed_downstream(facts: Facts) -> Reason | None:
    """Return the reason if a downstream asked for a pause, or enough tasks call it already."""
    if facts.now is None:
        return None
    for limit, running in facts.downstreams:
        if limit.retry_at is not None and is_closed(limit, facts.now):
            until = timestamp(limit.retry_at)
            message = f"{_named(limit)} throttles calls, and is called again at {until}."
            return Reason(CODE, message, {**_figures(limit, running), "until": until})
        if not slots_left(limit, running):
            most = limit.current_concurrency
            message = (
                f"{count_of(running, 'task')} that {'uses' if running == 1 else 'use'} "
                f"{_named(limit)} {'is' if running == 1 else 'are'} running; at most {most} may "
                f"run at once{_lowered(limit, limit.concurrency)}."
            )
            return Reason(CODE, message, _figures(limit, running))
    return None


def at_rate(facts: Facts) -> Reason | None:
    """Return the reason if nothing but the rate of a downstream keeps the task from starting."""
    rated = [
        (rate, limit, running)
        for limit, running in facts.downstreams
        if (rate := limit.current_rate) is not None
    ]
    if facts.now is None or not rated:
        return None
    rate, limit, running = min(rated, key=lambda each: each[0])
    full = None if limit.rate is None else format_rate(limit.rate)
    message = (
        f"At most {format_rate(rate)} of the tasks that use {_named(limit)} may start"
        f"{_lowered(limit, full)}."
    )
    details = _figures(limit, running)
    if facts.ahead is not None:
        at = timestamp(facts.now + timedelta(seconds=(facts.ahead + 1) / rate))
        message += f" It starts at about {at}, or later if other tasks use it."
        details["until"] = at
    return Reason(CODE, message, details)


def _named(limit: Downstream) -> str:
    return f"{limit.key!r}" if limit.tenant_id is not None else f"{limit.key!r} (shared by tenants)"


def _lowered(limit: Downstream, full: object) -> str:
    return f" instead of {full} since it throttled calls" if limit.factor < 1 else ""


def _figures(limit: Downstream, running: int) -> dict[str, Any]:
    rate = limit.current_rate
    return {
        "key": limit.key,
        "defined_by": "everyone" if limit.tenant_id is None else "tenant",
        "rate": None if rate is None else format_rate(rate),
        "concurrency": limit.current_concurrency,
        "running": running,
    }
