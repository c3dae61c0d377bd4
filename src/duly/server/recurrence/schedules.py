"""Creates, changes and removes schedules, and runs them on demand.

Every change locks the schedule's row, as firing does. So a fire time comes either before a
change or after it, and fire times that a change skips are recorded in its transaction.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.duration import format_duration
from duly.errors import Conflict, DulyError, Invalid, LimitExceeded, NotFound
from duly.model.requests.recurrence_request import parse_recurrence
from duly.model.requests.schedule_request import (
    MAX_GRAPH_TASKS,
    ScheduleRequest,
    check_schedule_name,
    parse_misfire,
    parse_overlap,
    recurrence_fields,
    schedule_template,
)
from duly.model.schedules.schedule import MissedFireTimes, Overlap, ScheduleTemplate
from duly.model.task import Reason
from duly.model.tenant import Credential
from duly.policy.schedules.firing import missed_until
from duly.policy.schedules.recurrence import between, next_after
from duly.server.admission.rate_limiter import RateLimiter
from duly.server.artifacts import artifact_references
from duly.server.cluster.hints import Hint
from duly.server.cluster.server_bus import ServerBus
from duly.server.recurrence import overlaps, templates
from duly.server.recurrence.occurrence_admission import OccurrenceDraft, OpenOccurrences
from duly.server.recurrence.occurrences import FireResult, NewOccurrence, Occurrences
from duly.server.recurrence.overlaps import OpenIds
from duly.server.recurrence.schedule_changes import apply_changes, first_fire_time
from duly.server.scheduling.leader_nudge import LeaderNudge
from duly.server.sequencer import Sequencer
from duly.store.accounts import audit_log, tenants
from duly.store.database import Connection, Database
from duly.store.tasks import schedules
from duly.store.tasks.schedules import StoredSchedule

MAX_BACKFILLED_FIRE_TIMES = 1000
"""The most past fire times that one request backfills."""
MICROSECOND = timedelta(microseconds=1)
PAUSED = Reason("paused", "The schedule was paused.")
CHANGED = Reason("changed", "The schedule was changed as its time came.")
REMOVED = Reason("removed", "The schedule was removed as its time came.")


class Schedules:
    """The operations of users on schedules."""

    def __init__(
        self,
        database: Database,
        sequencer: Sequencer,
        occurrences: Occurrences,
        rate_limiter: RateLimiter,
        leader_nudge: LeaderNudge,
        server_bus: ServerBus,
        history: timedelta,
    ) -> None:
        self._database = database
        self._sequencer = sequencer
        self._occurrences = occurrences
        self._rate_limiter = rate_limiter
        self._leader_nudge = leader_nudge
        self._server_bus = server_bus
        self._history = history

    async def create(self, credential: Credential, request: ScheduleRequest) -> int:
        """Store a schedule, and return its id."""
        task, graph = schedule_template(request.task, request.graph)
        overlap = parse_overlap(request.overlap)
        await templates.check(task, graph, credential.plan, overlap)
        async with self._database.writing_for(credential.tenant_id) as conn:
            await _check_schedule_limit(conn, credential)
            at = await tenants.hold(conn, credential.tenant_id)
            recurrence = parse_recurrence(request, now=at)
            schedule = StoredSchedule(
                template=ScheduleTemplate(
                    id=self._sequencer.mint(),
                    tenant_id=credential.tenant_id,
                    user_id=credential.user_id,
                    task=task,
                    graph=graph,
                    recurrence=recurrence,
                    misfire=parse_misfire(request.misfire),
                    overlap=overlap,
                ),
                name=check_schedule_name(request.name),
                user=credential.user,
                written=recurrence_fields(request),
                anchor=at,
                next_run_at=first_fire_time(recurrence, at),
                paused_at=None,
                open_tasks=[],
                open_graphs=[],
                created_at=at,
                updated_at=at,
            )
            await schedules.add(conn, schedule)
            await artifact_references.add_for_schedule(conn, schedule.template)
            await _record(conn, credential, "create", schedule, {"name": schedule.name})
        self._server_bus.broadcast(Hint(due=True))
        return schedule.template.id

    async def update(
        self, credential: Credential, schedule_id: int, changes: Mapping[str, Any]
    ) -> None:
        """Change the given fields; null restores the default."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            old, at = await _lock(conn, credential, schedule_id)
            new = apply_changes(old, changes, at)
            template = new.template
            await templates.check(template.task, template.graph, credential.plan, template.overlap)
            if template.checks_overlap and not old.template.checks_overlap:
                tasks, graphs = await schedules.read_open(conn, schedule_id)
                new = msgspec.structs.replace(new, open_tasks=tasks, open_graphs=graphs)
            if new.next_run_at != old.next_run_at:
                await self._record_skipped(conn, old, PAUSED if old.paused_at else CHANGED, at)
            await schedules.change(conn, new)
            await artifact_references.add_for_schedule(conn, template, old.template)
            await _record(conn, credential, "update", new, {"fields": sorted(changes)})
        self._server_bus.broadcast(Hint(due=True))

    async def pause(self, credential: Credential, schedule_id: int) -> None:
        """Stop a schedule from firing until it is resumed."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            old, at = await _lock(conn, credential, schedule_id)
            if old.paused_at is None:
                new = msgspec.structs.replace(old, paused_at=at, updated_at=at)
                await schedules.change(conn, new)
                await _record(conn, credential, "pause", new, {})

    async def resume(self, credential: Credential, schedule_id: int) -> None:
        """Let a paused schedule fire again, from its next fire time on."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            old, at = await _lock(conn, credential, schedule_id)
            if old.paused_at is not None:
                await self._record_skipped(conn, old, PAUSED, at)
                next_run_at = old.next_run_at
                if next_run_at is not None and next_run_at <= at:
                    next_run_at = next_after(old.template.recurrence, at)
                new = msgspec.structs.replace(
                    old, paused_at=None, next_run_at=next_run_at, updated_at=at
                )
                await schedules.change(conn, new)
                await _record(conn, credential, "resume", new, {})
        self._server_bus.broadcast(Hint(due=True))

    async def remove(self, credential: Credential, schedule_id: int) -> None:
        """Remove a schedule. The tasks that it submitted continue, and its history stays."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            old, at = await _lock(conn, credential, schedule_id)
            await self._record_skipped(conn, old, PAUSED if old.paused_at else REMOVED, at)
            await schedules.remove(conn, credential.tenant_id, schedule_id)
            await _record(conn, credential, "remove", old, {"name": old.name})

    async def run(self, credential: Credential, schedule_id: int) -> NewOccurrence:
        """Submit the task or graph of a schedule now, whatever its recurrence says."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            schedule, at = await _lock(conn, credential, schedule_id)
            draft = OccurrenceDraft(schedule.template, at, start_at=at)
            result = await self._fire(conn, credential, schedule, [draft], at)
            await _record(conn, credential, "run", schedule, {"tasks": len(result.tasks)})
        self._notify(result)
        return result.occurrences[0]

    async def backfill(
        self, credential: Credential, schedule_id: int, start_at: datetime, end_at: datetime
    ) -> list[int]:
        """Submit the tasks that past fire times lack; return their ids, or those of graphs."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            schedule, at = await _lock(conn, credential, schedule_id)
            template = schedule.template
            self._check_backfill_range(start_at, end_at, at)
            limit = min(MAX_BACKFILLED_FIRE_TIMES, max(1, MAX_GRAPH_TASKS // template.size))
            times = between(template.recurrence, start_at - MICROSECOND, end_at, limit=limit + 1)
            if len(times) > limit:
                raise Invalid(
                    "end_at",
                    f"there are more than {limit} fire times since start_at; number {limit} is "
                    f"{times[-2].isoformat()}. Backfill in several requests.",
                )
            ran = await schedules.read_ran(conn, schedule_id, times)
            drafts = [
                OccurrenceDraft(template, fire_at, start_at=at)
                for fire_at in times
                if fire_at not in ran
            ]
            if times and not drafts:
                raise Conflict("Each of these fire times has been run already.")
            result = await self._fire(conn, credential, schedule, drafts, at)
            await _record(conn, credential, "backfill", schedule, {"tasks": len(result.tasks)})
        self._notify(result)
        return [occurrence.id for occurrence in result.occurrences]

    def _check_backfill_range(self, start_at: datetime, end_at: datetime, at: datetime) -> None:
        if end_at < start_at:
            raise Invalid("end_at", "it is before start_at.")
        if end_at > at:
            raise Invalid("end_at", "it is in the future. Only past fire times can be backfilled.")
        if start_at < at - self._history:
            raise Invalid(
                "start_at",
                f"it is more than {format_duration(self._history)} ago. Older fire times are not "
                "kept (the setting retention.history).",
            )

    async def _fire(
        self,
        conn: Connection,
        credential: Credential,
        schedule: StoredSchedule,
        drafts: list[OccurrenceDraft],
        at: datetime,
    ) -> FireResult:
        """Store the occurrences of fire times, all or none, and add them to the schedule."""
        bucket = await self._rate_limiter.lock(conn, credential)
        await tenants.hold(conn, credential.tenant_id)
        accounts = await schedules.read_accounts(conn, [credential.tenant_id])
        if bucket is not None:
            accounts[credential.tenant_id] = msgspec.structs.replace(
                accounts[credential.tenant_id], tokens=bucket.whole_tokens
            )
        opened: dict[int, OpenOccurrences] = {}
        if schedule.template.overlap is Overlap.QUEUE:
            live = await schedules.read_live_tasks(conn, schedule.open_tasks)
            open_ids = OpenIds(sorted(live), schedule.open_graphs)
            opened = await overlaps.read_open(conn, {schedule.template.id: open_ids})
        result = await self._occurrences.fire(conn, drafts, accounts, opened, reclaim_refused=True)
        if result.refused:
            refusal = result.refused[0]
            if bucket is not None and refusal.details.get("limit") == "tasks_per_hour":
                self._rate_limiter.deduct(credential, bucket, len(drafts) * schedule.template.size)
            raise _error_for(refusal, schedule.template)
        if drafts and not result.occurrences:
            raise Conflict("Each of these fire times has been run already.")
        if schedule.template.checks_overlap and result.occurrences:
            await schedules.change(conn, _with_open(schedule, result, at))
        await overlaps.enforce(conn, result.occurrences, {})
        return result

    async def _record_skipped(
        self, conn: Connection, schedule: StoredSchedule, reason: Reason, at: datetime
    ) -> None:
        """Record past fire times that will not be run, with the reason."""
        if schedule.next_run_at is None:
            return
        template = schedule.template
        missed = missed_until(template.recurrence, schedule.next_run_at, reason, now=at)
        if missed is not None:
            await self._occurrences.fire(conn, [_missed_draft(template, missed)], {}, {})

    def _notify(self, result: FireResult) -> None:
        self._occurrences.cache_shapes(result)
        self._rate_limiter.observe(result.inserted.buckets)
        self._leader_nudge.announce_stored(result.tasks, result.inserted.stored)


def _with_open(schedule: StoredSchedule, result: FireResult, at: datetime) -> StoredSchedule:
    """Return the schedule with the new occurrences among its open ones."""
    tasks = [occurrence.id for occurrence in result.occurrences if occurrence.graph is None]
    graphs = [occurrence.id for occurrence in result.occurrences if occurrence.graph is not None]
    return msgspec.structs.replace(
        schedule,
        open_tasks=[*schedule.open_tasks, *tasks],
        open_graphs=[*schedule.open_graphs, *graphs],
        updated_at=at,
    )


def _missed_draft(template: ScheduleTemplate, missed: MissedFireTimes) -> OccurrenceDraft:
    return OccurrenceDraft(template, missed.first_at, missed)


def _error_for(reason: Reason, template: ScheduleTemplate) -> DulyError:
    """Return the error for a caller whose fire time was refused."""
    if reason.code == "limit_exceeded":
        return LimitExceeded(reason.message, **reason.details)
    if reason.code == "not_submittable":
        return Invalid("task" if template.graph is None else "graph", reason.message)
    return Conflict(reason.message, **reason.details)


async def _lock(
    conn: Connection, credential: Credential, schedule_id: int
) -> tuple[StoredSchedule, datetime]:
    locked = await schedules.lock(conn, credential.tenant_id, schedule_id)
    if locked is None:
        raise NotFound(f"There is no schedule {str(schedule_id)!r}.", kind="schedule")
    return locked


async def _check_schedule_limit(conn: Connection, credential: Credential) -> None:
    limit = credential.plan.max_schedules
    if limit is None:
        return
    if await schedules.count(conn, credential.tenant_id, up_to=limit) >= limit:
        number = "1 schedule" if limit == 1 else f"{limit} schedules"
        raise LimitExceeded(
            f"Limit exceeded: the plan {credential.plan.name!r} allows {number}. "
            "Remove one before you add another.",
            limit="max_schedules",
            max_schedules=limit,
        )


async def _record(
    conn: Connection,
    credential: Credential,
    verb: str,
    schedule: StoredSchedule,
    details: Mapping[str, Any],
) -> None:
    await audit_log.record(
        conn,
        credential=credential,
        action=f"schedule.{verb}",
        target=str(schedule.template.id),
        tenant_id=credential.tenant_id,
        details=details,
    )
