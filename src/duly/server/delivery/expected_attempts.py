"""What each incarnation should hold, read without walking over what is long gone.

An ended attempt leaves an entry in the index of what runs, until no snapshot is old enough to
see it. Tokens only go up, so a look begins above the token up to which the agent holds all
there is; what it says that it holds is looked up by id. Now and then, and whenever something
went wrong, everything is read: a lease whose answer was lost may come late, with a token from
before.
"""

from collections.abc import Sequence
from datetime import timedelta

from duly import wire
from duly.server.pace import Pace
from duly.server.reports import is_possible
from duly.store import nodes
from duly.store.database import Connection
from duly.store.nodes import HeldAttempt

NOTHING_SEEN = 0
"""Below every token."""
WHOLE = timedelta(seconds=1)
"""How often everything is read."""


class Mark:
    """Up to which token an incarnation holds all there is, and when to make sure of it."""

    def __init__(self) -> None:
        self.token = NOTHING_SEEN
        self.pace = Pace(WHOLE)


class Holdings:
    """Reads what incarnations should hold, and remembers how far each has been read."""

    def __init__(self) -> None:
        self._marks: dict[int, Mark] = {}

    async def read(
        self, conn: Connection, node_id: int, incarnation: int, held: Sequence[wire.AttemptRef]
    ) -> list[HeldAttempt] | None:
        """Return what an incarnation should hold, which says that it holds `held`.

        None says that it has ended, or is not the node's; nothing is remembered of it then.
        """
        # Taken out meanwhile: after an error nothing is known.
        mark = self._marks.pop(incarnation, None) or Mark()
        if mark.pace.is_due:
            with mark.pace.step(among=len(self._marks) + 1):
                rows = await nodes.read_held(conn, incarnation, node_id, NOTHING_SEEN, [])
            mark.token = NOTHING_SEEN if rows else mark.token
        else:
            below = [ref.task for ref in held if ref.token <= mark.token and is_possible(ref)]
            rows = await nodes.read_held(conn, incarnation, node_id, mark.token, below)
        if rows is None:
            return None
        mark.token = _held_up_to(mark.token, rows, held)
        self._marks[incarnation] = mark
        return rows


def _held_up_to(before: int, rows: Sequence[HeldAttempt], held: Sequence[wire.AttemptRef]) -> int:
    """Return the token up to which everything that should be held is held."""
    tokens = {ref.token for ref in held}
    missing = [row.token for row in rows if row.token not in tokens]
    if missing:
        return min(missing) - 1
    return max([before, *(row.token for row in rows)])
