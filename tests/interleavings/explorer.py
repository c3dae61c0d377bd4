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
from duly.server.lifecycle import graph_operations, overdue_detector
from duly.store.database import _initialize
from tests.interleavings import (
    capacity_invariants,
    edge_invariants,
    evidence,
    graph_invariants,
    node_invariants,
    overdue_invariants,
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

MAX_ACTORS = 5
STEPS_PER_RUN = 90
FAULT_RATE = 0.04
JOURNAL = Path(__file__).with_name("journal.sql").read_text()
INVARIANTS = (
    *task_invariants.INVARIANTS,
    *edge_invariants.INVARIANTS,
    *graph_invariants.INVARIANTS,
    *node_invariants.INVARIANTS,
    *pause_invariants.INVARIANTS,
    *overdue_invariants.INVARIANTS,
    *capacity_invariants.INVARIANTS,
    *tenant_invariants.INVARIANTS,
    *schedule_invariants.INVARIANTS,
)
TIME_STEPS = (0.5, 1.0, 2.0, 6.5, 6.5)
"""Seconds by which time moves; the last ones are longer than the lease of a node."""
TIME_STEPS_BY_THEME = {
    "failovers": (1.0, 6.5, 21.0),
    "firing": (0.5, 1.0, 2.0, 5.5),
    "firing with two leaders": (2.0, 6.5, 21.0),
    "reservations": (0.5, 1.0, 2.0),
    "reservation changes": (0.5, 1.0, 2.0),
    "unplaceable": (0.5, 1.0),
    "overdue": (0.5, 1.0, 2.0),
}
"""Themes with other steps: longer than the term of a leader, shorter than a reservation, or too
short to lose a node."""
SLOW_ACTORS = {"quotas": (" place",), "failovers": (" place",)}
"""Actors that are slow in these themes, so that what they read is stale when they write."""

SNAPSHOT = "select pg_current_snapshot()::text"
"""Identifies what is visible in the database."""
Inspect = Callable[[asyncpg.Connection], Coroutine[None, None, None]]


class InvariantViolated(AssertionError):
    """A run that violated an invariant, with its trace."""

    def __init__(self, seed: int, violations: list[str], trace: list[str]) -> None:
        steps = "\n".join(f"  {number:3} {line}" for number, line in enumerate(trace))
        super().__init__(f"seed {seed} violated:\n  " + "\n  ".join(violations) + f"\n{steps}")
        self.violations = violations


class Explorer:
    """A database with a journal, on which seeds are run one after another."""

    def __init__(
        self,
        database: SteppedDatabase,
        monitor: asyncpg.Connection,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self._database = database
        self._monitor = monitor
        self._monkeypatch = monkeypatch

    async def run(
        self, seed: int, theme: str | None = None, inspect: Inspect | None = None
    ) -> World:
        """Run a seed; raises InvariantViolated when an invariant does not hold.

        Whenever all actors are idle, `inspect` is called with a connection to the database.
        """
        rng = Random(seed)
        world = World(self._database, self._monitor, rng)
        self._monkeypatch.setattr(clock, "monotonic", world.monotonic)
        self._monkeypatch.setattr(graph_operations, "TASKS_PER_BATCH", rng.choice((1, 2)))
        self._monkeypatch.setattr(overdue_detector, "TASKS_PER_PAGE", 2)
        self._monkeypatch.setattr(overdue_detector, "FULL_PASS_INTERVAL", timedelta(0))
        self._monkeypatch.setattr(components, "Random", lambda: Random(rng.random()))
        await world.begin()
        await tenants.prepare(self._monitor)

        inspected = None

        async def on_idle() -> None:
            nonlocal inspected
            await world.stamp()
            if inspect is not None:
                # The same snapshot at the same time would give the same findings.
                visible = await self._monitor.fetchval(SNAPSHOT), world.now
                if visible != inspected:
                    await inspect(self._monitor)
                    inspected = visible

        driver = Driver(self._monitor, rng, FAULT_RATE, on_idle)
        try:
            await _run_theme(world, driver, theme or rng.choice(list(THEMES)))
            await _wind_down(world, driver)
        except Exception as error:
            raise InvariantViolated(
                seed, [f"{type(error).__name__}: {error}"], driver.trace
            ) from error
        finally:
            for actor in driver.actors:
                actor.task.cancel()
            await asyncio.gather(*(a.task for a in driver.actors), return_exceptions=True)
        gathered = await evidence.gather(self._monitor, world.acknowledged)
        violations = [
            f"{invariant.__name__}: {sentence}"
            for invariant in INVARIANTS
            for sentence in invariant(gathered)
        ]
        if violations:
            raise InvariantViolated(seed, violations, driver.trace)
        return world


@asynccontextmanager
async def exploring(
    dsn: str, monkeypatch: pytest.MonkeyPatch, sabotage: str = ""
) -> AsyncIterator[Explorer]:
    """Prepare a fresh, migrated database; `sabotage` is SQL with a deliberate defect."""
    monitor = await asyncpg.connect(
        dsn, server_settings={"search_path": "duly", "synchronous_commit": "off"}
    )
    await _initialize(monitor)
    await monitor.execute(JOURNAL)
    if sabotage:
        await monitor.execute(sabotage)
    database = SteppedDatabase(dsn)
    await database.open(MAX_ACTORS + 3)
    try:
        yield Explorer(database, monitor, monkeypatch)
    finally:
        await database.close()
        monitor.terminate()


def mutated_function(name: str, *changes: tuple[str, str]) -> str:
    """Return the SQL that replaces a function of the schema by one with a defect."""
    folder = resources.files("duly.store").joinpath("migrations")
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    schema = "".join(file.read_text() for file in files).replace("create or replace", "create")
    begin = schema.rindex(f"create function {name}(")
    body = schema[begin : schema.index("$$;", begin) + len("$$;")]
    for old, new in changes:
        assert old in body, f"{name} does not contain {old!r}"
        body = body.replace(old, new)
    return body.replace("create function", "create or replace function")


async def _run_theme(world: World, driver: Driver, theme: str) -> None:
    driver.note(f"the theme is {theme}")
    driver.slow = SLOW_ACTORS.get(theme, ())
    weights = {kind: weight * THEMES[theme].get(kind, 1) for kind, weight in WEIGHTS.items()}
    steps = 0
    while steps < STEPS_PER_RUN:
        if len(driver.actors) < MAX_ACTORS and world.rng.random() < 0.5:
            await begin(world, driver, weights)
        elif world.rng.random() < 0.05 * THEMES[theme].get("time", 1):
            seconds = world.rng.choice(TIME_STEPS_BY_THEME.get(theme, TIME_STEPS))
            driver.note(f"time passes: {seconds:g} s")
            await world.advance(timedelta(seconds=seconds))
        elif await driver.step():
            steps += 1
        else:
            await begin(world, driver, weights)
            steps += 1


async def _wind_down(world: World, driver: Driver) -> None:
    """Let all actors finish; then all nodes are lost, and a leader cleans up."""
    await driver.finish(
        *(lambda server=server: server.submitter.tick() for server in world.servers)
    )
    driver.note("all actors have ended, and every node is lost")
    # The previous term has expired, and the expiry grace of a new leader lasts one round.
    server = world.servers[0]
    for seconds in (25, 5, 5, 5):
        await world.advance(timedelta(seconds=seconds))
        for part in (server.cluster_manager, server.graph_operations, server.queue_manager):
            await part.tick()
