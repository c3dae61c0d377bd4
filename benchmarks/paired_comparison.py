"""Compares two stores that exist at the same time, in alternating turns.

The speed of a machine varies from minute to minute. So both installations run all the time, and
each turn of one is compared with the adjacent turn of the other: while one works, the node of the
other is drained. The CPU time per task is reported with the rates, because it varies much less.
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
from benchmarks.load import TRUE_TASK, Requests, send_all
from benchmarks.rig import Rig
from benchmarks.stub import stub
from benchmarks.waiting import until
from duly.bench.figure import Figure, at_least, median, percentile

CONTROL_PLANE, END_TO_END = "control plane", "/bin/true end to end"
BACKLOG_FACTOR = 1.5
"""Waiting tasks as a multiple of those of a turn, so that the queue never runs empty."""
WARM_UP_SHARE = 0.2
"""The first part of a turn, which is not measured."""
POLL_INTERVAL_SECONDS = 0.005
ENDED = "select last_value from duly.entries"
IS_IDLE = "select not exists (select from duly.live where status = 'running')"
DRAIN = "select duly.drain_node($1, $2)"
BACKENDS = """
select pid
  from pg_stat_activity
 where datname = current_database()
   and pid <> pg_backend_pid()
"""


@dataclass(frozen=True)
class Turn:
    """One turn of one store: tasks, seconds, and CPU seconds by part.

    `ended` also counts tasks that ended before and after the measured part of the turn.
    """

    tasks: int
    seconds: float
    cpu: dict[str, float]
    ended: int

    @property
    def rate(self) -> float:
        """Return the throughput in tasks per second."""
        return self.tasks / self.seconds


@dataclass(frozen=True)
class Comparison:
    """The turns of two stores; those with the same index were adjacent in time."""

    base: list[Turn]
    other: list[Turn]

    @property
    def ratios(self) -> list[float]:
        """Return the ratio of rates for each pair of turns."""
        pairs = zip(self.base, self.other, strict=True)
        return [other.rate / base.rate for base, other in pairs]


class Side:
    """One of the two installations; its node is drained between its turns."""

    def __init__(
        self, instance: Installation, conn: asyncpg.Connection, client: duly.Client
    ) -> None:
        self._installation = instance
        self._conn = conn
        self._client = client
        self._node = ""
        self.submitted = 0

    async def prepare(self, count: int) -> None:
        """Wait for the node, drain it, and submit enough tasks for a turn."""
        await until(self._has_joined)
        await self._drain_and_wait()
        self.submit(round(count * BACKLOG_FACTOR))

    def submit(self, count: int) -> None:
        """Submit `count` tasks over HTTP."""
        requests = Requests(self._installation.url, self._installation.key)
        send_all(requests, requests.batches(count, TRUE_TASK), 1)
        self.submitted += count

    async def turn(self, count: int) -> Turn:
        """Run about `count` tasks, then submit as many to replace them."""
        start: int = await self._conn.fetchval(ENDED)
        await self._set_draining(False)
        measured_from, began = await self._await_ended(start + round(count * WARM_UP_SHARE))
        before = await self._cpu()
        measured_to, ended = await self._await_ended(start + count)
        after = await self._cpu()
        await self._drain_and_wait()
        total = await self._conn.fetchval(ENDED) - start
        self.submit(total)
        cpu = {name: seconds - before[name] for name, seconds in after.items()}
        return Turn(measured_to - measured_from, ended - began, cpu, total)

    async def _has_joined(self) -> bool:
        ready = [node for node in self._client.list_nodes()["items"] if node["status"] == "ready"]
        self._node = ready[0]["id"] if ready else ""
        return bool(ready)

    async def _drain_and_wait(self) -> None:
        await self._set_draining(True)
        await until(lambda: self._conn.fetchval(IS_IDLE))

    async def _set_draining(self, draining: bool) -> None:
        """Drain the node, or end draining; the leader reads it within a second.

        Not over HTTP: the response includes the number of tasks on the node, which takes longer to
        count than a turn while a snapshot is held.
        """
        await self._conn.execute(DRAIN, int(self._node), draining)

    async def _await_ended(self, count: int) -> tuple[int, float]:
        """Wait until `count` tasks have ended, ever; return the exact count and the time."""
        ended = 0

        async def has_reached() -> bool:
            nonlocal ended
            ended = await self._conn.fetchval(ENDED)
            return ended >= count

        await until(has_reached, POLL_INTERVAL_SECONDS)
        return ended, time.perf_counter()

    async def _cpu(self) -> dict[str, float]:
        backends = [row["pid"] for row in await self._conn.fetch(BACKENDS)]
        parts = {name: usage.cpu(pids).own for name, pids in self._installation.parts.items()}
        return parts | {"PostgreSQL": usage.cpu(backends).own}


@contextmanager
def installed(rig: Rig, kind: str, dsn: str) -> Iterator[Installation]:
    """Run a server on a store, with a stub agent or with a real one."""
    if kind == END_TO_END:
        with installation.up(rig.postgres, dsn) as instance:
            yield instance
        return
    with installation.serve(rig.postgres, dsn) as instance, stub(instance) as counts:
        yield instance
    if counts.stale:
        raise checks.CheckFailed(f"{counts.stale:,} reports were refused as stale")


async def no_wear(_: Side) -> None:
    """Do nothing to the store before the comparison."""


def compare(
    rig: Rig,
    kind: str,
    base: str,
    other: str,
    wear: Callable[[Side], Awaitable[None]] = no_wear,
) -> Comparison:
    """Measure two stores in turns, after `wear` was applied to the other one."""
    sizes = rig.sizes
    count = sizes.turn if kind == CONTROL_PLANE else sizes.turn_runs
    dsns = (base, other)
    initial = [checks.count(dsn) for dsn in dsns]
    with installed(rig, kind, base) as first, installed(rig, kind, other) as second:
        comparison, submitted = asyncio.run(_in_turns([first, second], sizes.turns, count, wear))
    for dsn, before, added in zip(dsns, initial, submitted, strict=True):
        checks.none_lost(dsn, before + added)
    return comparison


async def _in_turns(
    instances: Sequence[Installation],
    turns: int,
    count: int,
    wear: Callable[[Side], Awaitable[None]],
) -> tuple[Comparison, list[int]]:
    async with AsyncExitStack() as stack:
        sides = [await _connect_side(instance, stack) for instance in instances]
        for side in sides:
            await side.prepare(count)
        await wear(sides[1])
        for side in sides:
            await side.turn(count)
        comparison = Comparison([], [])
        lists = (comparison.base, comparison.other)
        for first in _starting_sides(turns):
            for index in (first, 1 - first):
                lists[index].append(await sides[index].turn(count))
        return comparison, [side.submitted for side in sides]


def _starting_sides(turns: int) -> list[int]:
    """Return which side begins each pair of turns: both equally often, in random order.

    So neither a steady drift nor a periodic disturbance favours one side.
    """
    order = [number % 2 for number in range(turns)]
    random.Random(turns).shuffle(order)
    return order


async def _connect_side(instance: Installation, stack: AsyncExitStack) -> Side:
    conn = await asyncpg.connect(instance.dsn)
    stack.push_async_callback(conn.close)
    return Side(instance, conn, stack.enter_context(instance.client()))


def figures(
    part: str, name: str, comparison: Comparison, against: str, target_ratio: float | None
) -> Iterator[Figure]:
    """Yield the median rates with their spread, and the CPU time per task."""
    ratios = comparison.ratios
    low, high = percentile(ratios, 0.25), percentile(ratios, 0.75)
    yield Figure(
        part=part,
        name=name,
        value=median([turn.rate for turn in comparison.other]),
        unit="/s",
        limit=median([turn.rate for turn in comparison.base]),
        against=against,
        target=None if target_ratio is None else at_least(target_ratio),
        note=f"{len(ratios)} turns each, half of them {low:.0%} to {high:.0%}",
    )
    base, other = _per_task(comparison.base), _per_task(comparison.other)
    yield Figure(
        part=part,
        name=f"CPU per task, {name}",
        value=sum(other.values()),
        unit="µs",
        limit=sum(base.values()),
        against=against,
        note=", ".join(f"{key} {base[key]:.0f} → {other[key]:.0f}" for key in base),
    )


def _per_task(turns: list[Turn]) -> dict[str, float]:
    """Return the CPU microseconds per task, by part."""
    tasks = sum(turn.tasks for turn in turns)
    return {part: sum(turn.cpu[part] for turn in turns) / tasks * 1e6 for part in turns[0].cpu}
