"""Claims fire times: whoever is the first to record one sees to it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from duly.model.recurrence import Recurrence
from duly.policy.recurrence import next_after
from duly.server.drafts import Draft
from duly.store import schedules
from duly.store.database import Connection
from duly.store.schedules import Fire


async def claim(
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
