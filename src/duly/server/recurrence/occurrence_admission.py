"""Says what the fire times of schedules ask for, or why it cannot be had.

What cannot become a task or a graph, because a limit of its tenant is used up, too much of
its schedule waits already, or its plan does not allow it any more, is told apart from what
can, with the reason. Nothing is stored here.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from duly.errors import Invalid, TooLarge
from duly.model.request import Completer
from duly.model.schedule import Missed, Overlap, Template
from duly.model.task import Reason, Unique
from duly.policy.firing import start_of
from duly.server import backlog, rate_limiter, templates
from duly.server.templates import MOST_EDGES, Plot
from duly.store.schedules import Account

MOST_QUEUED = 100
"""Occurrences of one schedule that have not ended, at most, when another is to wait for them."""
SUSPENDED = Reason("tenant_suspended", "The tenant was suspended.")


class Draft(msgspec.Struct, frozen=True):
    """A fire time that is to become a task or a graph, or several in a row that were missed."""

    template: Template
    fire_at: datetime
    missed: Missed | None = None
    start_at: datetime | None = None
    """When it may start, if that does not follow from its fire time."""

    @property
    def key(self) -> tuple[int, datetime]:
        """Return what is unique about it."""
        return self.template.id, self.fire_at


class Open(msgspec.Struct, frozen=True):
    """What of a schedule has not ended: how many occurrences, and which of their tasks."""

    occurrences: int = 0
    tasks: list[int] = []


class Admission:
    """Judges drafts one after the other, each by what the ones before it leave."""

    def __init__(self, accounts: Mapping[int, Account], opened: Mapping[int, Open]) -> None:
        self._accounts = accounts
        self._rooms = {one: account.room for one, account in accounts.items()}
        self._tokens = {one: account.tokens for one, account in accounts.items()}
        self._opened = {
            schedule: (one.occurrences, len(one.tasks)) for schedule, one in opened.items()
        }
        """How many occurrences of a schedule have not ended, and how many tasks of theirs."""
        self._seen: set[tuple[int, str]] = set()
        self._completers = {one: Completer(account.plan) for one, account in accounts.items()}

    async def judge(self, draft: Draft) -> Plot | Reason:
        """Return what a draft asks for, or why it cannot be had."""
        if draft.missed is not None:
            return draft.missed.reason
        template = draft.template
        account = self._accounts[template.tenant_id]
        if account.is_suspended:
            return SUSPENDED
        short = self._short(account, template.size)
        if short is not None:
            return short
        start_at = draft.start_at or start_of(template.recurrence, template.id, draft.fire_at)
        try:
            completer = self._completers[template.tenant_id]
            plot = await templates.plot(template, completer, start_at=start_at)
        except (Invalid, TooLarge) as error:
            what = "task" if template.graph is None else "graph"
            return Reason("not_submittable", f"The plan does not take its {what}: {error.message}")
        except msgspec.ValidationError as error:
            # It was stored by a later version, which knows fields that this one does not.
            return Reason("not_submittable", f"This server cannot read what it submits: {error}.")
        reason = self._crowded(template, plot) or self._twice(template, plot)
        if reason is not None:
            return reason
        self._take(template)
        return plot

    def _take(self, template: Template) -> None:
        """Count an occurrence that is admitted."""
        for left in (self._rooms, self._tokens):
            now = left[template.tenant_id]
            if now is not None:
                left[template.tenant_id] = now - template.size
        occurrences, tasks = self._opened.get(template.id, (0, 0))
        self._opened[template.id] = occurrences + 1, tasks + template.size

    def _short(self, account: Account, size: int) -> Reason | None:
        """Say which limit of a tenant leaves no room for so many tasks."""
        plan = account.plan
        room, tokens = self._rooms[account.tenant_id], self._tokens[account.tenant_id]
        if room is not None and room < size:
            said = backlog.say_exceeded(plan)
            return Reason("limit_exceeded", said, {"limit": "max_waiting"})
        if tokens is not None and tokens < size:
            return used_up(plan.tasks_per_hour, plan.burst)
        return None

    def _crowded(self, template: Template, plot: Plot) -> Reason | None:
        """Say that too much of a schedule waits for another occurrence to wait behind it."""
        if template.overlap is not Overlap.QUEUE:
            return None
        occurrences, tasks = self._opened.get(template.id, (0, 0))
        if occurrences < MOST_QUEUED and len(plot.roots) * tasks <= MOST_EDGES:
            return None
        return Reason(
            "too_many_queued",
            f"{occurrences} earlier occurrences have not ended, with {tasks} tasks; no more can "
            "wait behind them.",
            {"occurrences": occurrences, "tasks": tasks},
        )

    def _twice(self, template: Template, plot: Plot) -> Reason | None:
        """Say that an earlier draft has the unique key that this one asks for."""
        for spec in plot.specs:
            if spec.unique is not None:
                key = template.tenant_id, spec.unique.key
                if key in self._seen:
                    return held(spec.unique)
                self._seen.add(key)
        return None


def used_up(tasks_per_hour: int | None, burst: int | None) -> Reason:
    """Return why a tenant's bucket admits no more for now."""
    return Reason(
        "limit_exceeded",
        rate_limiter.say_exceeded(tasks_per_hour, burst),
        {"limit": "tasks_per_hour"},
    )


def held(unique: Unique, holder: int | None = None) -> Reason:
    """Return why a task whose unique key another one has is not submitted."""
    details = {} if holder is None else {"task": str(holder)}
    return Reason("unique_key_held", f"Another task has the unique key {unique.key!r}.", details)
