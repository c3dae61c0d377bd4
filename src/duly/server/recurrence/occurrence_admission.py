"""Decides for each fire time whether it becomes a task or graph, or is refused with a reason.

A fire time is refused when a limit of its tenant is used up, when too many occurrences of its
schedule are queued, or when the plan does not allow its task any more. Nothing is stored here.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from duly.errors import Invalid, TooLarge
from duly.model.requests.task_request import Completer
from duly.model.schedules.schedule import MissedFireTimes, Overlap, ScheduleTemplate
from duly.model.task import Reason, Unique
from duly.policy.schedules.firing import jittered_start
from duly.server.admission import backlog_limit, rate_limiter
from duly.server.recurrence import templates
from duly.server.recurrence.templates import MAX_QUEUE_EDGES, OccurrenceSpec
from duly.store.tasks.schedules import Account

MAX_QUEUED_OCCURRENCES = 100
"""With this many open occurrences of one schedule, another is not queued behind them."""
SUSPENDED = Reason("tenant_suspended", "The tenant was suspended.")


class OccurrenceDraft(msgspec.Struct, frozen=True):
    """A fire time that is to become a task or graph, or a run of missed fire times to record."""

    template: ScheduleTemplate
    fire_at: datetime
    missed: MissedFireTimes | None = None
    start_at: datetime | None = None
    """When the occurrence may start, if not at the fire time."""

    @property
    def key(self) -> tuple[int, datetime]:
        """Return the schedule and fire time, which identify an occurrence."""
        return self.template.id, self.fire_at


class OpenOccurrences(msgspec.Struct, frozen=True):
    """The occurrences of a schedule that have not ended: their number and their open tasks."""

    occurrences: int = 0
    tasks: list[int] = []


class OccurrenceAdmission:
    """Admits drafts one after the other; each admitted one uses up part of the limits."""

    def __init__(
        self, accounts: Mapping[int, Account], open_occurrences: Mapping[int, OpenOccurrences]
    ) -> None:
        self._accounts = accounts
        self._room = {tenant: account.room for tenant, account in accounts.items()}
        self._tokens = {tenant: account.tokens for tenant, account in accounts.items()}
        self._open_counts = {
            schedule: (opened.occurrences, len(opened.tasks))
            for schedule, opened in open_occurrences.items()
        }
        """The number of open occurrences and of their open tasks, by schedule."""
        self._unique_keys: set[tuple[int, str]] = set()
        self._completers = {tenant: Completer(account.plan) for tenant, account in accounts.items()}

    async def admit(self, draft: OccurrenceDraft) -> OccurrenceSpec | Reason:
        """Return the spec of the occurrence, or the reason it is refused."""
        if draft.missed is not None:
            return draft.missed.reason
        template = draft.template
        account = self._accounts[template.tenant_id]
        if account.is_suspended:
            return SUSPENDED
        exceeded = self._exceeded_limit(account, template.size)
        if exceeded is not None:
            return exceeded
        start_at = draft.start_at or jittered_start(template.recurrence, template.id, draft.fire_at)
        try:
            completer = self._completers[template.tenant_id]
            spec = await templates.build_spec(template, completer, start_at=start_at)
        except (Invalid, TooLarge) as error:
            kind = "task" if template.graph is None else "graph"
            return Reason("not_submittable", f"The plan does not allow its {kind}: {error.message}")
        except msgspec.ValidationError as error:
            # It was stored by a later version, which knows fields that this one does not.
            return Reason(
                "not_submittable", f"This server cannot decode its task or graph: {error}."
            )
        reason = self._too_many_queued(template, spec) or self._duplicate_key(template, spec)
        if reason is not None:
            return reason
        self._charge(template)
        return spec

    def _charge(self, template: ScheduleTemplate) -> None:
        """Subtract an admitted occurrence from the limits."""
        for remaining in (self._room, self._tokens):
            amount = remaining[template.tenant_id]
            if amount is not None:
                remaining[template.tenant_id] = amount - template.size
        occurrences, tasks = self._open_counts.get(template.id, (0, 0))
        self._open_counts[template.id] = occurrences + 1, tasks + template.size

    def _exceeded_limit(self, account: Account, size: int) -> Reason | None:
        """Return the reason if a limit of the tenant does not allow `size` more tasks."""
        plan = account.plan
        room, tokens = self._room[account.tenant_id], self._tokens[account.tenant_id]
        if room is not None and room < size:
            message = backlog_limit.exceeded_message(plan)
            return Reason("limit_exceeded", message, {"limit": "max_waiting"})
        if tokens is not None and tokens < size:
            return rate_exceeded(plan.tasks_per_hour, plan.burst)
        return None

    def _too_many_queued(self, template: ScheduleTemplate, spec: OccurrenceSpec) -> Reason | None:
        """Return the reason if no more occurrences of the schedule can be queued."""
        if template.overlap is not Overlap.QUEUE:
            return None
        occurrences, tasks = self._open_counts.get(template.id, (0, 0))
        if occurrences < MAX_QUEUED_OCCURRENCES and len(spec.roots) * tasks <= MAX_QUEUE_EDGES:
            return None
        return Reason(
            "too_many_queued",
            f"{occurrences} earlier occurrences with {tasks} tasks have not ended; no more can "
            "queue behind them.",
            {"occurrences": occurrences, "tasks": tasks},
        )

    def _duplicate_key(self, template: ScheduleTemplate, spec: OccurrenceSpec) -> Reason | None:
        """Return the reason if an earlier draft has taken a unique key of this one."""
        for task_spec in spec.task_specs:
            if task_spec.unique is not None:
                key = template.tenant_id, task_spec.unique.key
                if key in self._unique_keys:
                    return unique_key_held(task_spec.unique)
                self._unique_keys.add(key)
        return None


def rate_exceeded(tasks_per_hour: int | None, burst: int | None) -> Reason:
    """Return the reason for refusing tasks when the tenant's token bucket is empty."""
    return Reason(
        "limit_exceeded",
        rate_limiter.exceeded_message(tasks_per_hour, burst),
        {"limit": "tasks_per_hour"},
    )


def unique_key_held(unique: Unique, holder: int | None = None) -> Reason:
    """Return the reason for refusing a task whose unique key is held by another task."""
    details = {} if holder is None else {"task": str(holder)}
    return Reason(
        "unique_key_held", f"Another task has the unique key {unique.key!r} already.", details
    )
