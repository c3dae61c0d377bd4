"""One seed: a scenario of submits, leases, reports, losses and take-overs in some order."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import pytest

from duly import clock
from duly.server import parts
from duly.store.database import _prepare
from tests.interleavings import laws
from tests.interleavings.driver import Driver
from tests.interleavings.stepping import SteppedDatabase
from tests.interleavings.world import Server, World

AT_ONCE = 5
STEPS = 90
HARM = 0.04
JOURNAL = Path(__file__).with_name("journal.sql").read_text()
KEYS = (None, None, None, "a", "b", "c")
PASSING = (0.5, 1.0, 2.0, 6.5, 6.5)
"""Seconds: the last ones are longer than a node may be silent."""
LONG_PASSING = (1.0, 6.5, 21.0)
"""The last one is longer than a leader may be silent."""


class Broken(AssertionError):
    """A run that broke a law, with its story."""

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

    async def run(self, seed: int, theme: str | None = None) -> None:
        """Run a seed; raises Broken when a law did not hold."""
        dice = Random(seed)
        world = World(self._database, self._monitor, dice)
        self._monkeypatch.setattr(clock, "monotonic", world.monotonic)
        self._monkeypatch.setattr(parts, "Random", lambda: Random(dice.random()))
        await world.begin()
        driver = Driver(self._monitor, dice, HARM, world.stamp)
        try:
            await _drive(world, driver, theme or dice.choice(list(THEMES)))
            await _quiet(world, driver)
        except Exception as error:
            raise Broken(seed, [f"{type(error).__name__}: {error}"], driver.trace) from error
        finally:
            for actor in driver.actors:
                actor.task.cancel()
            await asyncio.gather(*(a.task for a in driver.actors), return_exceptions=True)
        sentences = laws.broken(await laws.gather(self._monitor, world.told))
        if sentences:
            raise Broken(seed, sentences, driver.trace)


@asynccontextmanager
async def exploring(
    dsn: str, monkeypatch: pytest.MonkeyPatch, sabotage: str = ""
) -> AsyncIterator[Explorer]:
    """Prepare a fresh migrated database; `sabotage` is SQL that breaks it on purpose."""
    monitor = await asyncpg.connect(
        dsn, server_settings={"search_path": "duly", "synchronous_commit": "off"}
    )
    await _prepare(monitor)
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
    weights = {kind: weight * THEMES[theme].get(kind, 1) for kind, weight in WEIGHTS.items()}
    steps = 0
    while steps < STEPS:
        if len(driver.actors) < AT_ONCE and world.dice.random() < 0.5:
            await _begin(world, driver, weights)
        elif world.dice.random() < 0.05 * THEMES[theme].get("time", 1):
            seconds = world.dice.choice(LONG_PASSING if theme == "hand-overs" else PASSING)
            driver.note(f"time passes: {seconds:g} s")
            await world.move(timedelta(seconds=seconds))
        elif await driver.step():
            steps += 1
        else:
            await _begin(world, driver, weights)
            steps += 1


async def _begin(world: World, driver: Driver, weights: dict[str, float]) -> None:
    """Let somebody begin something."""
    server = world.dice.choice(world.servers)
    node = world.dice.choice(world.nodes)
    tasks = [task for _, _, task, _ in world.told.submits[-4:]]
    kind = world.dice.choices(list(weights), list(weights.values()))[0]
    if world.is_idle(kind) and world.dice.random() < 0.85:
        return
    if kind in LOOPS:
        _loop(world, driver, server, kind)
    elif kind == "kill":
        driver.note(f"{server.name}: is killed")
        driver.kill(server.name)
        world.replace(server)
    elif kind == "submit":
        key = world.dice.choice(KEYS)
        _start(driver, f"{server.name} submits {key}", lambda: world.submit(server, key))
    elif kind == "batch":
        keys = world.dice.sample(KEYS, 3)
        _start(driver, f"{server.name} submits {keys}", lambda: world.submit_batch(server, keys))
    elif kind in ("cancel", "update") and tasks:
        task = world.dice.choice(tasks)
        work = world.cancel if kind == "cancel" else world.update
        _start(driver, f"{server.name} {kind}s {task}", lambda: work(server, task))
    elif kind in ("poll", "report", "heartbeat", "leave") and node.incarnation:
        _node(world, driver, server, kind)
    elif kind == "join" and node.incarnation:
        _start(driver, f"{node.name} joins", lambda: world.join(node))
    elif kind == "drain":
        draining = world.dice.random() < 0.5
        name = f"{server.name} drains {node.name}: {draining}"
        _start(driver, name, lambda: world.drain(server, node, draining))
    await driver.settle()


LOOPS = ("cluster", "place", "sweep", "commit")
WEIGHTS = {
    "submit": 4,
    "batch": 3,
    "commit": 4,
    "place": 25,
    "sweep": 10,
    "cluster": 6,
    "poll": 10,
    "report": 12,
    "heartbeat": 4,
    "cancel": 3,
    "update": 2,
    "join": 2,
    "leave": 1,
    "drain": 1,
    "kill": 0.5,
}
THEMES: dict[str, dict[str, float]] = {
    "everything": {},
    "submits": {"submit": 6, "batch": 4, "commit": 5, "kill": 2},
    "changes": {"cancel": 6, "update": 12, "poll": 0.3},
    "cancels": {"cancel": 10, "report": 3, "poll": 2, "sweep": 2},
    "joins": {"join": 10, "drain": 4, "leave": 3, "poll": 0.2, "sweep": 0.5},
    "drains": {"drain": 30, "batch": 4, "poll": 0.2, "sweep": 0.3},
    "losses": {"sweep": 3, "report": 3, "poll": 1.5, "heartbeat": 4, "cluster": 0.5, "time": 2},
    "repeats": {"report": 6, "poll": 4, "sweep": 0.3, "submit": 0.3, "batch": 0.3, "join": 0.3},
    "hand-overs": {"cluster": 4, "place": 2, "batch": 6, "poll": 0.1, "report": 0.1, "time": 3},
}
"""What happens often in a run; every seed has one."""


def _loop(world: World, driver: Driver, server: Server, kind: str) -> None:
    tick = {
        "cluster": server.cluster_manager.tick,
        "place": server.resource_manager.tick,
        "sweep": lambda: world.sweep(server),
        "commit": server.submitter.tick,
    }[kind]
    if kind in ("place", "sweep") and server.cluster_manager.term is None:
        return
    if kind not in server.busy:
        _start(driver, f"{server.name} {kind}", lambda: world.alone(server, kind, tick))


def _node(world: World, driver: Driver, server: Server, kind: str) -> None:
    node = world.dice.choice([node for node in world.nodes if node.incarnation])
    if (kind == "report" and not node.held and not node.past) or (kind == "leave" and node.held):
        kind = "poll"
    work = {
        "poll": world.poll,
        "report": world.report,
        "heartbeat": world.heartbeat,
        "leave": world.leave,
    }[kind]
    _start(driver, f"{server.name} for {node.name}: {kind}", lambda: work(server, node))


def _start(driver: Driver, name: str, work: Callable[[], Coroutine[None, None, Any]]) -> None:
    driver.start(name, work)


async def _quiet(world: World, driver: Driver) -> None:
    """Let everybody finish; then all nodes fall silent, and a leader cleans up."""
    await driver.finish(
        *(lambda server=server: server.submitter.tick() for server in world.servers)
    )
    driver.note("all is quiet, and every node is gone")
    # Whoever led has been silent for too long, and the patience of a new leader lasts one round.
    server = world.servers[0]
    for seconds in (25, 8, 8):
        await world.move(timedelta(seconds=seconds))
        for tick in (server.cluster_manager.tick, server.queue_manager.tick):
            await tick()
