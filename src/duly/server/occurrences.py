"""Turns fire times into tasks: each is claimed once, and stored like any other task.

What cannot become a task, because a limit of its tenant is used up or its plan does not
allow it any more, is told apart from what can, with the reason. Whoever calls has locked
the schedules, and their tenants' buckets, in this transaction.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from duly.errors import Invalid, TooLarge, Unavailable
from duly.model.recurrence import Recurrence
from duly.model.schedule import Missed, Template
from duly.model.schedule_request import spec_of
from duly.model.task import Reason, TaskSpec, Unique
from duly.policy.firing import start_of
from duly.policy.recurrence import next_after
from duly.server.cluster_manager import ClusterManager
from duly.server.rate_limiter import rate_of
from duly.server.sequencer import Sequencer
from duly.server.shape_book import ShapeBook
from duly.store import schedules, tasks
from duly.store.database import Connection
from duly.store.schedules import Account, Fire
from duly.store.tasks import Inserted, NewTask

NOTHING = Inserted([], {}, {}, set())
SUSPENDED = Reason("tenant_suspended", "The tenant was suspended.")


class Draft(msgspec.Struct, frozen=True):
    """A fire time that is to become a task, or several in a row that were missed."""

    template: Template
    fire_at: datetime
    missed: Missed | None = None
    start_at: datetime | None = None
    """When it may start, if that does not follow from its fire time."""

    @property
    def key(self) -> tuple[int, datetime]:
        """Return what is unique about it."""
        return self.template.id, self.fire_at


class Made(msgspec.Struct, frozen=True):
    """What has become of drafts."""

    tasks: list[NewTask]
    """What is stored."""
    inserted: Inserted
    opened: dict[int, list[int]]
    """The ids of what is stored, by schedule."""
    refused: list[Reason]
    shapes: dict[str, int]
    """To be remembered after the commit."""


class Occurrences:
    """Makes tasks of fire times on behalf of one server."""

    def __init__(
        self, cluster_manager: ClusterManager, sequencer: Sequencer, shapes: ShapeBook
    ) -> None:
        self._cluster_manager = cluster_manager
        self._sequencer = sequencer
        self._shapes = shapes

    async def make(
        self,
        conn: Connection,
        drafts: Sequence[Draft],
        accounts: Mapping[int, Account],
        *,
        again: bool = False,
    ) -> Made:
        """Claim fire times, store their tasks, and record why the others have none.

        A fire time that was claimed before is passed over in silence: it has been seen to. With
        `again`, only if it has a task.
        """
        asked = list(_admit(drafts, accounts))
        fires = [_fire(draft, outcome, self._sequencer) for draft, outcome in asked]
        fresh = await _claim(conn, drafts, fires, again=again) if fires else set()
        specs = {
            fire.task_id: (draft.template, outcome)
            for fire, (draft, outcome) in zip(fires, asked, strict=True)
            if fire.task_id is not None and isinstance(outcome, TaskSpec) and draft.key in fresh
        }
        shapes = await self._shapes.find_all(conn, [spec for _, spec in specs.values()])
        new = [
            NewTask(
                id=task_id,
                tenant_id=template.tenant_id,
                user_id=template.user_id,
                shape_id=shapes[tasks.shape_key(spec.shape)],
                spec=spec,
                body_hash=b"",
                is_limited=rate_of(accounts[template.tenant_id].plan) is not None,
            )
            for task_id, (template, spec) in specs.items()
        ]
        inserted = NOTHING
        if new:
            inserted = await tasks.insert(conn, new, server=self._cluster_manager.number)
        late = _left_out(new, inserted)
        if late:
            await schedules.refuse(conn, late)
        opened: dict[int, list[int]] = {}
        for one in inserted.stored:
            opened.setdefault(specs[one.id][0].id, []).append(one.id)
        refused = [outcome for draft, outcome in asked if isinstance(outcome, Reason)]
        return Made(
            [task for task in new if task.id not in late],
            inserted,
            opened,
            [*refused, *late.values()],
            shapes,
        )

    def remember(self, made: Made) -> None:
        """Take in what was found out on the way, after the commit."""
        self._shapes.remember(made.shapes)


def _admit(
    drafts: Iterable[Draft], accounts: Mapping[int, Account]
) -> Iterator[tuple[Draft, TaskSpec | Reason]]:
    """Yield what each draft asks for, or why it cannot be had."""
    room = {tenant_id: account.room for tenant_id, account in accounts.items()}
    seen: set[tuple[int, str]] = set()
    for draft in drafts:
        tenant_id = draft.template.tenant_id
        outcome = _judge(draft, accounts, room.get(tenant_id))
        if isinstance(outcome, TaskSpec) and outcome.unique is not None:
            key = tenant_id, outcome.unique.key
            if key in seen:
                outcome = _held(outcome.unique)
            seen.add(key)
        left = room.get(tenant_id)
        if isinstance(outcome, TaskSpec) and left is not None:
            room[tenant_id] = left - 1
        yield draft, outcome


def _judge(draft: Draft, accounts: Mapping[int, Account], room: int | None) -> TaskSpec | Reason:
    if draft.missed is not None:
        return draft.missed.reason
    account = accounts[draft.template.tenant_id]
    if account.is_suspended:
        return SUSPENDED
    if room is not None and room < 1:
        return Reason(
            "limit_exceeded",
            f"Limit exceeded: at most {account.plan.max_waiting} tasks may wait in the plan "
            f"{account.plan.name!r}.",
            {"limit": "max_waiting"},
        )
    template = draft.template
    try:
        return spec_of(
            template.task,
            account.plan,
            template.overlap,
            schedule_id=template.id,
            start_at=draft.start_at or start_of(template.recurrence, template.id, draft.fire_at),
        )
    except (Invalid, TooLarge) as error:
        return Reason("not_submittable", f"The plan does not take its task: {error.message}")


def _fire(draft: Draft, outcome: TaskSpec | Reason, sequencer: Sequencer) -> Fire:
    missed, is_missed = draft.missed, isinstance(outcome, Reason)
    return Fire(
        schedule_id=draft.template.id,
        fire_at=draft.fire_at,
        tenant_id=draft.template.tenant_id,
        scheduling_type=draft.template.recurrence.kind,
        task_id=None if is_missed else sequencer.mint(),
        reason=outcome if isinstance(outcome, Reason) else None,
        last_at=None if missed is None else missed.last_at,
        times=1 if missed is None else missed.times,
    )


async def _claim(
    conn: Connection, drafts: Sequence[Draft], fires: Sequence[Fire], *, again: bool
) -> set[tuple[int, datetime]]:
    """Claim fire times, and return those that nobody had claimed before.

    Missed ones in a row are recorded under the first of them. If that has been seen to, because
    somebody made up for it before it was missed, the others are recorded under the next.
    """
    fresh = await schedules.claim(conn, fires, again=again)
    rules = {draft.template.id: draft.template.recurrence for draft in drafts}
    rest = [
        fire for fire in fires if fire.times > 1 and (fire.schedule_id, fire.fire_at) not in fresh
    ]
    while rest := [left for fire in rest if (left := _without_first(fire, rules)) is not None]:
        taken = await schedules.claim(conn, rest)
        rest = [fire for fire in rest if (fire.schedule_id, fire.fire_at) not in taken]
    return fresh


def _without_first(fire: Fire, rules: Mapping[int, Recurrence]) -> Fire | None:
    """Return missed fire times but for the first of them; None when there is no other."""
    next_at = next_after(rules[fire.schedule_id], fire.fire_at)
    if next_at is None or fire.last_at is None or next_at > fire.last_at:
        return None
    return msgspec.structs.replace(fire, fire_at=next_at, times=fire.times - 1)


def _left_out(new: Iterable[NewTask], inserted: Inserted) -> dict[int, Reason]:
    """Return the tasks that were not stored, and why."""
    stored = {one.id for one in inserted.stored}
    reasons = {}
    for task in new:
        if task.id not in stored:
            unique = task.spec.unique
            bucket = inserted.buckets.get(task.tenant_id)
            if unique is not None and task.id in inserted.held:
                reasons[task.id] = _held(unique, inserted.held[task.id])
            elif bucket is not None:
                reasons[task.id] = Reason(
                    "limit_exceeded",
                    f"Limit exceeded: {bucket.rate.tasks_per_hour} tasks per hour, and at most "
                    f"{bucket.rate.burst} at once.",
                    {"limit": "tasks_per_hour"},
                )
            else:
                raise Unavailable("The bucket of a tenant was not held.")
    return reasons


def _held(unique: Unique, holder: int | None = None) -> Reason:
    details = {} if holder is None else {"task": str(holder)}
    return Reason("unique_key_held", f"Another task has the unique key {unique.key!r}.", details)
