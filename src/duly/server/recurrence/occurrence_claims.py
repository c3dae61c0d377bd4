"""Claims fire times: the first transaction to record a fire time is the one that handles it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from duly.model.schedules.recurrence import Recurrence
from duly.policy.schedules.recurrence import next_after
from duly.server.recurrence.occurrence_admission import OccurrenceDraft
from duly.store.database import Connection
from duly.store.tasks import schedules
from duly.store.tasks.schedules import Fire


async def claim(
    conn: Connection,
    drafts: Sequence[OccurrenceDraft],
    fires: Sequence[Fire],
    *,
    reclaim_refused: bool,
) -> set[tuple[int, datetime]]:
    """Claim fire times, and return the keys of those that had not been claimed before.

    Consecutive missed fire times are recorded under the first of them. If that one has been
    claimed, because a backfill ran it before it was missed, the others are recorded under the
    next. With `reclaim_refused`, fire times that led to no task can be claimed again.
    """
    claimed = await schedules.claim(conn, fires, again=reclaim_refused)
    recurrences = {draft.template.id: draft.template.recurrence for draft in drafts}
    rest = [
        fire for fire in fires if fire.times > 1 and (fire.schedule_id, fire.fire_at) not in claimed
    ]
    while rest := [
        later for fire in rest if (later := _without_first(fire, recurrences)) is not None
    ]:
        recorded = await schedules.claim(conn, rest)
        rest = [fire for fire in rest if (fire.schedule_id, fire.fire_at) not in recorded]
    return claimed


def _without_first(fire: Fire, recurrences: Mapping[int, Recurrence]) -> Fire | None:
    """Return the missed fire times without the first; None when there was only one."""
    next_at = next_after(recurrences[fire.schedule_id], fire.fire_at)
    if next_at is None or fire.last_at is None or next_at > fire.last_at:
        return None
    return msgspec.structs.replace(fire, fire_at=next_at, times=fire.times - 1)
