"""Explains why a task is where it is (`duly why`): always exactly one binding reason.

The facts are the values that placement decides by, so the explanation cannot differ from what
the scheduler sees. If several things keep a task from running, the reason is the one that has to
change first.
"""

from typing import assert_never

from duly.model.task import Reason, Status
from duly.model.wording import count_of, either, uncapitalised
from duly.policy.explanation.facts import Facts
from duly.policy.explanation.overdue import add_overdue
from duly.policy.explanation.timestamps import timestamp
from duly.policy.explanation.wait_position import add_position
from duly.policy.explanation.waiting import explain_waiting


def explain(facts: Facts) -> Reason:
    """Return the one reason why the task is where it is."""
    match facts.status:
        case Status.SCHEDULED:
            return _scheduled(facts)
        case Status.BLOCKED:
            return _blocked(facts)
        case Status.WAITING:
            return add_overdue(add_position(explain_waiting(facts), facts.ahead), facts)
        case Status.RUNNING:
            return _running(facts)
        case Status.PAUSED:
            return _paused(facts)
        case Status.DONE:
            return facts.stored or Reason("done", "It is done.")
        case Status.FAILED:
            return facts.stored or Reason("failed", "It failed.")
        case Status.CANCELLED:
            return facts.stored or Reason("cancelled", "It was cancelled.")
        case _:
            assert_never(facts.status)


def _paused(facts: Facts) -> Reason:
    """Return who paused it, how to resume it, and the upstream tasks it waits for besides."""
    origin, details = _pause_origin(facts)
    resume = f"Resume it with 'duly resume {facts.task}'."
    if (graph := details["graph"]) is not None:
        resume = (
            f"Resume the graph with 'duly resume --graph {graph}', or this task alone with 'duly "
            f"resume {facts.task}'."
        )
    message = f"Paused{origin}. {resume}"
    if facts.blocked_by:
        message += f" After that, it waits for {count_of(facts.blocked_by, 'task')} to end."
    return Reason("paused", message, details)


def _pause_origin(facts: Facts) -> tuple[str, dict[str, str | None]]:
    """Return who or what paused it and when, as text and as details."""
    pause = facts.pause
    if pause is None:
        return "", {"by": None, "graph": None, "paused_at": None}
    by, graph, at = pause.cause.by, pause.cause.graph, timestamp(pause.at)
    origin = f" with its graph {graph}" if graph else f" by {by}" if by else ""
    return f"{origin} at {at}", {"by": by, "graph": graph, "paused_at": at}


def _blocked(facts: Facts) -> Reason:
    if facts.awaited is None:
        others = count_of(facts.blocked_by, "task")
        return Reason(
            "upstream_running", f"Waiting for {others} to end.", {"left": facts.blocked_by}
        )
    named = [str(task) for task in facts.awaited]
    more = facts.blocked_by - len(named)
    noun = "task" if facts.blocked_by == 1 else "tasks"
    message = "The tasks that it waited for have just ended; it continues in a moment."
    if named:
        listed = either([*named, f"{more} more"] if more > 0 else named, "and")
        message = f"Waiting for {noun} {listed} to end."
    return Reason(
        "upstream_running",
        message,
        {"left": facts.blocked_by, "upstreams": [str(task) for task in facts.awaited]},
    )


def _scheduled(facts: Facts) -> Reason:
    at = timestamp(facts.ready_at)
    if facts.attempt == 0:
        return Reason("not_due", f"Scheduled to start at {at}.", {"ready_at": at})
    if facts.stored is not None and facts.stored.code == "throttled":
        return Reason(
            "throttled",
            f"{facts.stored.message} Attempt {facts.attempt + 1} is scheduled to start at {at}.",
            {**facts.stored.details, "ready_at": at, "attempt": facts.attempt},
        )
    last = "" if facts.stored is None else f": {uncapitalised(facts.stored.message).rstrip('.')}"
    return Reason(
        "retry_backoff",
        f"Attempt {facts.attempt} failed{last}. Attempt {facts.attempt + 1} is scheduled to start "
        f"at {at}.",
        {
            "ready_at": at,
            "attempt": facts.attempt,
            "last": None if facts.stored is None else facts.stored.code,
        },
    )


def _running(facts: Facts) -> Reason:
    node = facts.node or "a node"
    if facts.cancel_requested_at is not None:
        at = timestamp(facts.cancel_requested_at)
        return Reason(
            "cancel_requested",
            f"Being stopped on {node}: it was cancelled at {at}.",
            {"node": facts.node, "cancel_requested_at": at},
        )
    since = None if facts.leased_at is None else timestamp(facts.leased_at)
    if facts.is_paused:
        origin, details = _pause_origin(facts)
        return Reason(
            "pause_requested",
            f"Running on {node}. It was paused{origin}: if this attempt fails, the next one starts "
            f"only after 'duly resume {facts.task}'.",
            {"node": facts.node, "since": since, **details},
        )
    return Reason(
        "running",
        f"Running on {node}" + (f" since {since}." if since else "."),
        {"node": facts.node, "since": since},
    )
