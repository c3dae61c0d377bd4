"""Runs one seed: submits, leases, reports, losses and failovers in a random order of statements."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import resources
from pathlib import Path
from random import Random

import asyncpg
import pytest

from duly import clock
from duly.server import components
from duly.server.lifecycle import graph_operations
from duly.store.database import _initialize
from tests.interleavings import (
    capacity_invariants,
    edge_invariants,
    evidence,
    graph_invariants,
    node_invariants,
    pause_invariants,
    schedule_invariants,
    task_invariants,
    tenant_invariants,
    tenants,
)
from tests.interleavings.driver import Driver
from tests.interleavings.stepped_database import SteppedDatabase
from tests.interleavings.workload import THEMES, WEIGHTS, begin
from tests.interleavings.world import World

AT_ONCE = 5
STEPS = 90
HARM = 0.04
JOURNAL = Path(__file__).with_name("journal.sql").read_text()
INVARIANTS = (
    *task_invariants.INVARIANTS,
    *edge_invariants.INVARIANTS,
    *graph_invariants.INVARIANTS,
    *node_invariants.INVARIANTS,
    *pause_invariants.INVARIANTS,
    *capacity_invariants.INVARIANTS,
    *tenant_invariants.INVARIANTS,
    *schedule_invariants.INVARIANTS,
)
PASSING = (0.5, 1.0, 2.0, 6.5, 6.5)
"""Seconds: the last ones are longer than a node may be silent."""
PASSING_IN = {
    "hand-overs": (1.0, 6.5, 21.0),
    "fires": (0.5, 1.0, 2.0, 5.5),
    "fires of two leaders": (2.0, 6.5, 21.0),
    "reservations": (0.5, 1.0, 2.0),
    "extensions": (0.5, 1.0, 2.0),
    "misfits": (0.5, 1.0),
}
"""Other ways of time: longer than a leader may be silent; no longer than a reservation lasts;
too short to lose a node, without which nothing fits anyway."""
SLOW = {"quotas": (" place",), "hand-overs": (" place",)}
"""Who stands before each statement while much happens: what it has read is old when it writes."""

VISIBLE = "select pg_current_snapshot()::text"
"""Which transactions are seen; everything else follows from them."""
Look = Callable[[asyncpg.Connection], Coroutine[None, None, None]]


class InvariantViolated(AssertionError):
    """A run that violated an invariant, with its trace."""

    def __init__(self, seed: int, sentences: list[str], trace: list[str]) -> None:
        story = "\n".join(f"  {number:3} {line}" for number, line in enumerate(trace))
        super().__init__(f"seed {seed} broke:\n  " + "\n  ".join(sentences) + f"\n{story}")
        self.sentences = sentences


class Explorer:
    """A database with a journal, on which one seed after the other is run."""

    def __init__(
        self,
        database: SteppedDatabase,
        monitor: asyncpg.Connection,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self._database = database
        self._monitor = monitor
        self._monkeypatch = monkeypatch

    async def run(self, seed: int, theme: str | None = None, look: Look | None = None) -> World:
        """Run a seed; raises InvariantViolated when an invariant does not hold.

        Whenever everybody stands still, `look` may look at the database too.
        """
        dice = Random(seed)
        world = World(self._database, self._monitor, dice)
        self._monkeypatch.setattr(clock, "monotonic", world.monotonic)
        self._monkeypatch.setattr(graph_operations, "TASKS_PER_BATCH", dice.choice((1, 2)))
        self._monkeypatch.setattr(components, "Random", lambda: Random(dice.random()))
        await world.begin()
        await tenants.prepare(self._monitor)

        looked_at = None

        async def after() -> None:
            nonlocal looked_at
            await world.stamp()
            if look is not None:
                # Who sees what was seen before, at the same time, finds what was found.
                seen = await self._monitor.fetchval(VISIBLE), world.now
                if seen != looked_at:
                    await look(self._monitor)
                    looked_at = seen

        driver = Driver(self._monitor, dice, HARM, after)
        try:
            await _drive(world, driver, theme or dice.choice(list(THEMES)))
            await _quiet(world, driver)
        except Exception as error:
            raise InvariantViolated(
                seed, [f"{type(error).__name__}: {error}"], driver.trace
            ) from error
        finally:
            for actor in driver.actors:
                actor.task.cancel()
            await asyncio.gather(*(a.task for a in driver.actors), return_exceptions=True)
        seen = await evidence.gather(self._monitor, world.told)
        sentences = [f"{law.__name__}: {said}" for law in INVARIANTS for said in law(seen)]
        if sentences:
            raise InvariantViolated(seed, sentences, driver.trace)
        return world


@asynccontextmanager
async def exploring(
    dsn: str, monkeypatch: pytest.MonkeyPatch, sabotage: str = ""
) -> AsyncIterator[Explorer]:
    """Prepare a fresh migrated database; `sabotage` is SQL that breaks it on purpose."""
    monitor = await asyncpg.connect(
        dsn, server_settings={"search_path": "duly", "synchronous_commit": "off"}
    )
    await _initialize(monitor)
    await monitor.execute(JOURNAL)
    if sabotage:
        await monitor.execute(sabotage)
    database = SteppedDatabase(dsn)
    await database.open(AT_ONCE + 3)
    try:
        yield Explorer(database, monitor, monkeypatch)
    finally:
        await database.close()
        monitor.terminate()


def function(name: str, *changes: tuple[str, str]) -> str:
    """Return the SQL that replaces a function of the schema by one with a mistake in it."""
    folder = resources.files("duly.store").joinpath("migrations")
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    schema = "".join(file.read_text() for file in files).replace("create or replace", "create")
    begin = schema.rindex(f"create function {name}(")
    body = schema[begin : schema.index("$$;", begin) + len("$$;")]
    for old, new in changes:
        assert old in body, f"{name} does not contain {old!r}"
        body = body.replace(old, new)
    return body.replace("create function", "create or replace function")


async def _drive(world: World, driver: Driver, theme: str) -> None:
    driver.note(f"the theme is {theme}")
    driver.slow = SLOW.get(theme, ())
    weights = {kind: weight * THEMES[theme].get(kind, 1) for kind, weight in WEIGHTS.items()}
    steps = 0
    while steps < STEPS:
        if len(driver.actors) < AT_ONCE and world.dice.random() < 0.5:
            await begin(world, driver, weights)
        elif world.dice.random() < 0.05 * THEMES[theme].get("time", 1):
            seconds = world.dice.choice(PASSING_IN.get(theme, PASSING))
            driver.note(f"time passes: {seconds:g} s")
            await world.move(timedelta(seconds=seconds))
        elif await driver.step():
            steps += 1
        else:
            await begin(world, driver, weights)
            steps += 1


async def _quiet(world: World, driver: Driver) -> None:
    """Let everybody finish; then all nodes fall silent, and a leader cleans up."""
    await driver.finish(
        *(lambda server=server: server.submitter.tick() for server in world.servers)
    )
    driver.note("all is quiet, and every node is gone")
    # Whoever led has been silent for too long, and the patience of a new leader lasts one round.
    server = world.servers[0]
    for seconds in (25, 5, 5, 5):
        await world.move(timedelta(seconds=seconds))
        for part in (server.cluster_manager, server.graph_operations, server.queue_manager):
            await part.tick()
