"""Compares two stores that exist at the same time, in alternating turns.

A machine is not the same from one minute to the next. So both installations run all the
time, and what one does in a second is compared with what the other did in the second before
or after it: while one works, the node of the other takes nothing. Beside the rates stands the
CPU time of a task, which varies much less than they do.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

import asyncpg

import duly
from benchmarks import checks, installation, usage
from benchmarks.installation import Installation
from benchmarks.load import TRUE, Requests, send_all
from benchmarks.rig import Rig
from benchmarks.stub import stub
from benchmarks.waiting import until
from duly.bench.figure import Figure, at_least, median, percentile

BY_STUB, FOR_REAL = "control plane", "/bin/true end to end"
SPARE = 1.5
"""Of what ends in a turn, so that the end of the line is not in sight."""
EARLY = 0.2
"""The share of a turn that is not measured: whoever has rested has to get going."""
LOOK = 0.005
"""Seconds between two looks at how many have ended."""
ENDED = "select last_value from duly.entries"
AT_REST = "select not exists (select from duly.live where status = 'running')"
DRAIN = "select duly.drain_node($1, $2)"
BACKENDS = """
select pid
  from pg_stat_activity
 where datname = current_database()
   and pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class Turn:
    """What one store did in one turn: tasks, seconds, and CPU seconds by part.

    With what ended before and after it was measured, `ended` tasks.
    """

    tasks: int
    seconds: float
    cpu: dict[str, float]
    ended: int

    @property
    def rate(self) -> float:
        """Return the tasks that ended in a second."""
        return self.tasks / self.seconds


@dataclass(frozen=True)
class Compared:
    """The turns of two stores; those with the same index were next to each other."""

    base: list[Turn]
    other: list[Turn]

    @property
    def ratios(self) -> list[float]:
        """Return the rates of each two turns as ratios."""
        pairs = zip(self.base, self.other, strict=True)
        return [other.rate / base.rate for base, other in pairs]


class Side:
    """One of the two: an installation whose node works when it is told to."""

    def __init__(self, place: Installation, conn: asyncpg.Connection, client: duly.Client) -> None:
        self._place = place
        self._conn = conn
        self._client = client
        self._node = ""
        self.submitted = 0

    async def prepare(self, count: int) -> None:
        """Let the node rest as soon as it is there, and make sure of enough for a turn."""
        await until(self._has_joined)
        await self._rest()
        self.submit(round(count * SPARE))

    def submit(self, count: int) -> None:
        """Store so many more tasks, over HTTP."""
        requests = Requests(self._place.url, self._place.key)
        send_all(requests, requests.batches(count, TRUE), 1)
        self.submitted += count

    async def turn(self, count: int) -> Turn:
        """Let about `count` tasks end, and put as many in their place."""
        start: int = await self._conn.fetchval(ENDED)
        await self._drain(False)
        early, began = await self._await(start + round(count * EARLY))
        before = await self._cpu()
        late, ended = await self._await(start + count)
        after = await self._cpu()
        await self._rest()
        whole = await self._conn.fetchval(ENDED) - start
        self.submit(whole)
        spent = {name: seconds - before[name] for name, seconds in after.items()}
        return Turn(late - early, ended - began, spent, whole)

    async def _has_joined(self) -> bool:
        ready = [one for one in self._client.list_nodes()["items"] if one["status"] == "ready"]
        self._node = ready[0]["id"] if ready else ""
        return bool(ready)

    async def _rest(self) -> None:
        await self._drain(True)
        await until(lambda: self._conn.fetchval(AT_REST))

    async def _drain(self, draining: bool) -> None:
        """Let the node rest, or work. The leader sees it when it looks next, within a second.

        Not over HTTP: the answer tells what runs on the node, and where a snapshot is kept it takes
        longer to count that than a turn.
        """
        await self._conn.execute(DRAIN, int(self._node), draining)

    async def _await(self, count: int) -> tuple[int, float]:
        """Wait until so many tasks have ended, ever; return how many it were, and when."""
        seen = 0

        async def are_there() -> bool:
            nonlocal seen
            seen = await self._conn.fetchval(ENDED)
            return seen >= count

        await until(are_there, LOOK)
        return seen, time.perf_counter()

    async def _cpu(self) -> dict[str, float]:
        backends = [row["pid"] for row in await self._conn.fetch(BACKENDS)]
        parts = {name: usage.cpu(pids).own for name, pids in self._place.parts.items()}
        return parts | {"PostgreSQL": usage.cpu(backends).own}


@contextmanager
def installed(rig: Rig, kind: str, dsn: str) -> Iterator[Installation]:
    """Run a server on a store, with a stub agent or with a real one."""
    if kind == FOR_REAL:
        with installation.up(rig.postgres, dsn) as place:
            yield place
        return
    with installation.serve(rig.postgres, dsn) as place, stub(place) as counts:
        yield place
    if counts.stale:
        raise checks.Wrong(f"{counts.stale:,} reports were refused as stale")


async def nothing(_: Side) -> None:
    """Leave a store as it is."""


def compare(
    rig: Rig,
    kind: str,
    base: str,
    other: str,
    wear: Callable[[Side], Awaitable[None]] = nothing,
) -> Compared:
    """Measure two stores in turns, after something was done to the other one."""
    sizes = rig.sizes
    count = sizes.turn if kind == BY_STUB else sizes.turn_runs
    dsns = (base, other)
    held = [checks.count(dsn) for dsn in dsns]
    with installed(rig, kind, base) as one, installed(rig, kind, other) as another:
        compared, submitted = asyncio.run(_in_turns([one, another], sizes.turns, count, wear))
    for dsn, before, added in zip(dsns, held, submitted, strict=True):
        checks.none_lost(dsn, before + added)
    return compared


async def _in_turns(
    places: Sequence[Installation],
    turns: int,
    count: int,
    wear: Callable[[Side], Awaitable[None]],
) -> tuple[Compared, list[int]]:
    async with AsyncExitStack() as stack:
        sides = [await _side(place, stack) for place in places]
        for side in sides:
            await side.prepare(count)
        await wear(sides[1])
        for side in sides:
            await side.turn(count)
        compared = Compared([], [])
        lists = (compared.base, compared.other)
        for first in _who_begins(turns):
            for which in (first, 1 - first):
                lists[which].append(await sides[which].turn(count))
        return compared, [side.submitted for side in sides]


def _who_begins(turns: int) -> list[int]:
    """Return who begins in each turn: one as often as the other, by chance.

    What changes steadily changes both alike then, and so does what comes and goes in a beat.
    """
    order = [number % 2 for number in range(turns)]
    random.Random(turns).shuffle(order)
    return order


async def _side(place: Installation, stack: AsyncExitStack) -> Side:
    conn = await asyncpg.connect(place.dsn)
    stack.push_async_callback(conn.close)
    return Side(place, conn, stack.enter_context(place.client()))


def told(
    part: str, name: str, compared: Compared, against: str, least: float | None
) -> Iterator[Figure]:
    """Tell the rates with their spread, and the CPU time of a task beside them."""
    ratios = compared.ratios
    low, high = percentile(ratios, 0.25), percentile(ratios, 0.75)
    yield Figure(
        part=part,
        name=name,
        value=median([turn.rate for turn in compared.other]),
        unit="/s",
        limit=median([turn.rate for turn in compared.base]),
        against=against,
        target=None if least is None else at_least(least),
        note=f"{len(ratios)} turns each, half of them {low:.0%} to {high:.0%}",
    )
    base, other = _per_task(compared.base), _per_task(compared.other)
    yield Figure(
        part=part,
        name=f"CPU per task, {name}",
        value=sum(other.values()),
        unit="µs",
        limit=sum(base.values()),
        against=against,
        note=", ".join(f"{one} {base[one]:.0f} → {other[one]:.0f}" for one in base),
    )


def _per_task(turns: list[Turn]) -> dict[str, float]:
    """Return the microseconds of CPU that each part took for a task."""
    tasks = sum(turn.tasks for turn in turns)
    return {part: sum(turn.cpu[part] for turn in turns) / tasks * 1e6 for part in turns[0].cpu}
