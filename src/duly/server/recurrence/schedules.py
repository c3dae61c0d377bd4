"""Makes, changes and removes schedules, and runs them out of turn.

Every change locks the schedule's row, as firing does. So a fire time comes before a change
or after it, and what a change passes over is recorded with it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.errors import Conflict, DulyError, Invalid, LimitExceeded, NotFound
from duly.model.recurrence_request import read_recurrence
from duly.model.schedule import Missed, Overlap, Template
from duly.model.schedule_request import (
    MOST_TASKS,
    ScheduleRequest,
    misfire_of,
    name_of,
    overlap_of,
    submitted_of,
    written_of,
)
from duly.model.task import Reason
from duly.model.tenant import Credential
from duly.policy.firing import passed_over
from duly.policy.recurrence import between, next_after
from duly.server import bundles, overlaps, templates
from duly.server.drafts import Draft, Open
from duly.server.herald import Herald
from duly.server.news import News
from duly.server.occurrences import Made, Occurrence, Occurrences
from duly.server.overlaps import Live
from duly.server.rate_limiter import RateLimiter
from duly.server.schedule_changes import changed, first_after
from duly.server.sequencer import Sequencer
from duly.server.waker import Waker
from duly.store import audit_log, schedules, tenants
from duly.store.database import Connection, Database
from duly.store.schedules import StoredSchedule

MOST_BACKFILLED = 1000
"""Fire times of the past that one request makes up for, at most."""
MOMENT = timedelta(microseconds=1)
PAUSED = Reason("paused", "The schedule was paused.")
CHANGED = Reason("changed", "The schedule was changed as its time came.")
REMOVED = Reason("removed", "The schedule was removed as its time came.")


class Schedules:
    """What users do to schedules."""

    def __init__(
        self,
        database: Database,
        sequencer: Sequencer,
        occurrences: Occurrences,
        rate_limiter: RateLimiter,
        waker: Waker,
        herald: Herald,
        history: timedelta,
    ) -> None:
        self._database = database
        self._sequencer = sequencer
        self._occurrences = occurrences
        self._rate_limiter = rate_limiter
        self._waker = waker
        self._herald = herald
        self._history = history

    async def create(self, credential: Credential, asked: ScheduleRequest) -> int:
        """Store a schedule, and return its id."""
        task, graph = submitted_of(asked.task, asked.graph)
        overlap = overlap_of(asked.overlap)
        await templates.check(task, graph, credential.plan, overlap)
        async with self._database.writing_for(credential.tenant_id) as conn:
            await _check_number(conn, credential)
            at = await tenants.hold(conn, credential.tenant_id)
            recurrence = read_recurrence(asked, now=at)
            made = StoredSchedule(
                template=Template(
                    id=self._sequencer.mint(),
                    tenant_id=credential.tenant_id,
                    user_id=credential.user_id,
                    task=task,
                    graph=graph,
                    recurrence=recurrence,
                    misfire=misfire_of(asked.misfire),
                    overlap=overlap,
                ),
                name=name_of(asked.name),
                user=credential.user,
                written=written_of(asked),
                anchor=at,
                next_run_at=first_after(recurrence, at),
                paused_at=None,
                open_tasks=[],
                open_graphs=[],
                created_at=at,
                updated_at=at,
            )
            await schedules.add(conn, made)
            await bundles.hold_for_schedule(conn, made.template)
            await _record(conn, credential, "create", made, {"name": made.name})
        self._herald.announce(News(due=True))
        return made.template.id

    async def update(
        self, credential: Credential, schedule_id: int, changes: Mapping[str, Any]
    ) -> None:
        """Change the given fields; null brings a default back."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            old, at = await _lock(conn, credential, schedule_id)
            new = changed(old, changes, at)
            template = new.template
            await templates.check(template.task, template.graph, credential.plan, template.overlap)
            if template.watches and not old.template.watches:
                tasks, graphs = await schedules.read_open(conn, schedule_id)
                new = msgspec.structs.replace(new, open_tasks=tasks, open_graphs=graphs)
            if new.next_run_at != old.next_run_at:
                await self._pass_over(conn, old, PAUSED if old.paused_at else CHANGED, at)
            await schedules.change(conn, new)
            await bundles.hold_for_schedule(conn, template, old.template)
            await _record(conn, credential, "update", new, {"fields": sorted(changes)})
        self._herald.announce(News(due=True))

    async def pause(self, credential: Credential, schedule_id: int) -> None:
        """Let a schedule not fire any more until it is resumed."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            old, at = await _lock(conn, credential, schedule_id)
            if old.paused_at is None:
                new = msgspec.structs.replace(old, paused_at=at, updated_at=at)
                await schedules.change(conn, new)
                await _record(conn, credential, "pause", new, {})

    async def resume(self, credential: Credential, schedule_id: int) -> None:
        """Let a schedule fire again, from its next fire time on."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            old, at = await _lock(conn, credential, schedule_id)
            if old.paused_at is not None:
                await self._pass_over(conn, old, PAUSED, at)
                next_run_at = old.next_run_at
                if next_run_at is not None and next_run_at <= at:
                    next_run_at = next_after(old.template.recurrence, at)
                new = msgspec.structs.replace(
                    old, paused_at=None, next_run_at=next_run_at, updated_at=at
                )
                await schedules.change(conn, new)
                await _record(conn, credential, "resume", new, {})
        self._herald.announce(News(due=True))

    async def remove(self, credential: Credential, schedule_id: int) -> None:
        """Remove a schedule; what it has submitted goes on, and its history stays."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            old, at = await _lock(conn, credential, schedule_id)
            await self._pass_over(conn, old, PAUSED if old.paused_at else REMOVED, at)
            await schedules.remove(conn, credential.tenant_id, schedule_id)
            await _record(conn, credential, "remove", old, {"name": old.name})

    async def run(self, credential: Credential, schedule_id: int) -> Occurrence:
        """Submit the task or graph of a schedule now, whatever its recurrence says."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            old, at = await _lock(conn, credential, schedule_id)
            draft = Draft(old.template, at, start_at=at)
            made = await self._make(conn, credential, old, [draft], at)
            await _record(conn, credential, "run", old, {"tasks": len(made.tasks)})
        self._tell(made)
        return made.occurrences[0]

    async def backfill(
        self, credential: Credential, schedule_id: int, start_at: datetime, end_at: datetime
    ) -> list[int]:
        """Submit what is missing for the fire times of the past; return the ids."""
        async with self._database.writing_for(credential.tenant_id) as conn:
            old, at = await _lock(conn, credential, schedule_id)
            self._check_past(start_at, end_at, at)
            most = min(MOST_BACKFILLED, max(1, MOST_TASKS // old.template.size))
            times = between(old.template.recurrence, start_at - MOMENT, end_at, most=most + 1)
            if len(times) > most:
                raise Invalid(
                    "end_at",
                    f"More than {most} fire times lie between start_at and end_at; "
                    f"the last of so many is {times[-2].isoformat()}. Do it in parts.",
                )
            ran = await schedules.read_ran(conn, schedule_id, times)
            drafts = [Draft(old.template, one, start_at=at) for one in times if one not in ran]
            if times and not drafts:
                raise Conflict("Each of these fire times has been run already.")
            made = await self._make(conn, credential, old, drafts, at)
            await _record(conn, credential, "backfill", old, {"tasks": len(made.tasks)})
        self._tell(made)
        return [one.id for one in made.occurrences]

    def _check_past(self, start_at: datetime, end_at: datetime, at: datetime) -> None:
        if end_at < start_at:
            raise Invalid("end_at", "end_at must not be before start_at.")
        if end_at > at:
            raise Invalid("end_at", "end_at must not lie ahead; what is to come, comes by itself.")
        if start_at < at - self._history:
            raise Invalid(
                "start_at",
                "start_at lies further back than what became of fire times is remembered "
                "(the setting retention.history).",
            )

    async def _make(
        self,
        conn: Connection,
        credential: Credential,
        schedule: StoredSchedule,
        drafts: list[Draft],
        at: datetime,
    ) -> Made:
        """Make tasks or graphs of fire times, all or none, and keep the schedule's books."""
        bucket = await self._rate_limiter.lock(conn, credential)
        await tenants.hold(conn, credential.tenant_id)
        accounts = await schedules.read_accounts(conn, [credential.tenant_id])
        if bucket is not None:
            account = accounts[credential.tenant_id]
            full = msgspec.structs.replace(account, tokens=bucket.whole)
            accounts[credential.tenant_id] = full
        opened: dict[int, Open] = {}
        if schedule.template.overlap is Overlap.QUEUE:
            live = await schedules.read_live_tasks(conn, schedule.open_tasks)
            ahead = Live(sorted(live), schedule.open_graphs)
            opened = await overlaps.read_open(conn, {schedule.template.id: ahead})
        made = await self._occurrences.make(conn, drafts, accounts, opened, again=True)
        if made.refused:
            if bucket is not None and made.refused[0].details.get("limit") == "tasks_per_hour":
                self._rate_limiter.require(credential, bucket, len(drafts) * schedule.template.size)
            raise _refusal(made.refused[0], schedule.template)
        if drafts and not made.occurrences:
            raise Conflict("Each of these fire times has been run already.")
        if schedule.template.watches and made.occurrences:
            await schedules.change(conn, _with_more(schedule, made, at))
        await overlaps.settle(conn, made.occurrences, {})
        return made

    async def _pass_over(
        self, conn: Connection, schedule: StoredSchedule, reason: Reason, at: datetime
    ) -> None:
        """Record the fire times that have come and that nobody will see to any more."""
        if schedule.next_run_at is None:
            return
        template = schedule.template
        missed = passed_over(template.recurrence, schedule.next_run_at, reason, now=at)
        if missed is not None:
            await self._occurrences.make(conn, [_missed(template, missed)], {}, {})

    def _tell(self, made: Made) -> None:
        self._occurrences.remember(made)
        self._rate_limiter.note(made.inserted.buckets)
        self._waker.wake(made.tasks, made.inserted.stored)


def _with_more(schedule: StoredSchedule, made: Made, at: datetime) -> StoredSchedule:
    """Return a schedule that knows what was made and has not ended."""
    tasks = [one.id for one in made.occurrences if one.graph is None]
    graphs = [one.id for one in made.occurrences if one.graph is not None]
    return msgspec.structs.replace(
        schedule,
        open_tasks=[*schedule.open_tasks, *tasks],
        open_graphs=[*schedule.open_graphs, *graphs],
        updated_at=at,
    )


def _missed(template: Template, missed: Missed) -> Draft:
    return Draft(template, missed.first_at, missed)


def _refusal(reason: Reason, template: Template) -> DulyError:
    """Return what somebody is told whose fire time cannot become a task or a graph."""
    if reason.code == "limit_exceeded":
        return LimitExceeded(reason.message, **reason.details)
    if reason.code == "not_submittable":
        return Invalid("task" if template.graph is None else "graph", reason.message)
    return Conflict(reason.message, **reason.details)


async def _lock(
    conn: Connection, credential: Credential, schedule_id: int
) -> tuple[StoredSchedule, datetime]:
    found = await schedules.lock(conn, credential.tenant_id, schedule_id)
    if found is None:
        raise NotFound(f"There is no schedule {schedule_id}.")
    return found


async def _check_number(conn: Connection, credential: Credential) -> None:
    most = credential.plan.max_schedules
    if most is None:
        return
    if await schedules.count(conn, credential.tenant_id, up_to=most) >= most:
        number = "1 schedule" if most == 1 else f"{most} schedules"
        raise LimitExceeded(
            f"Limit exceeded: the plan {credential.plan.name!r} has {number}. "
            "Remove one before you add another.",
            limit="max_schedules",
            max_schedules=most,
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
