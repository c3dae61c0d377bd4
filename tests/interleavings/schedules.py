"""Operations on schedules: create, fire, change, pause, remove, run now and backfill."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.model.requests.graph_request import GraphRequest
from duly.model.requests.schedule_request import ScheduleRequest
from duly.model.requests.task_request import TaskRequest
from tests.interleavings.participants import Server
from tests.interleavings.world import CLIENT, World

MOST = 2
EVERY = 2
GRAPH = {"a": [], "b": [], "c": ["a", "b"]}
"""The refs of a graph's tasks, and what each depends on."""
OFF = timedelta(seconds=0.25)
"""Fire times lie beside every time at which somebody may run a schedule out of turn."""


def is_fire_time(at: datetime) -> bool:
    """Say whether a time is one of a recurrence, and not of somebody who did not wait for it."""
    return at.microsecond % 500_000 != 0


async def create(world: World, server: Server) -> None:
    """Make one more, unless there are enough."""
    if len(world.schedules) < MOST:
        asked = ScheduleRequest(
            **_submitted(world),
            every=f"{EVERY}s",
            start_at=(world.now + OFF).isoformat(),
            misfire=world.dice.choice(("once", "all", "all")),
            overlap=world.dice.choice(("allow", "skip", "cancel_other", "queue", "queue")),
        )
        world.schedules.append(await server.schedules.create(CLIENT, asked))


async def fire(world: World, server: Server) -> None:
    """Do what the leader's loop does; what it writes ends with its term."""
    term = server.cluster_manager.term
    asked = world.tell("asked", 0)
    await server.timekeeper.tick()
    if term is not None:
        world.tell("fired", term.number, asked=asked)


async def change(world: World, server: Server, schedule: int) -> None:
    """Let it submit something else."""
    await server.schedules.update(CLIENT, schedule, msgspec.to_builtins(_submitted(world)))


async def pause(world: World, server: Server, schedule: int) -> None:
    """Pause it, or let it go on."""
    if world.dice.random() < 0.5:
        await server.schedules.pause(CLIENT, schedule)
    else:
        await server.schedules.resume(CLIENT, schedule)


async def run(world: World, server: Server, schedule: int) -> None:
    """Run it out of turn."""
    made = await server.schedules.run(CLIENT, schedule)
    world.occurrences.append(made.ids)
    world.is_stirred = True


async def backfill(world: World, server: Server, schedule: int) -> None:
    """Make up for the last few fire times, also for one that is due and not yet seen to."""
    before = world.now - timedelta(seconds=world.dice.choice((EVERY, 3 * EVERY)))
    await server.schedules.backfill(CLIENT, schedule, before, world.now)
    world.is_stirred = True


async def call_off(world: World, server: Server) -> None:
    """Cancel one that was run out of turn, though others may wait behind it."""
    if world.occurrences:
        await server.canceller.cancel(CLIENT, world.dice.choice(world.occurrences))


async def remove(world: World, server: Server, schedule: int) -> None:
    before = world.now
    await server.schedules.remove(CLIENT, schedule)
    world.told.removals[schedule] = before
    if schedule in world.schedules:
        world.schedules.remove(schedule)


def _submitted(world: World) -> dict[str, Any]:
    """Return a task or a graph whose tasks have a name that no other has."""
    task = {"name": f"fired {world.dice.randrange(10**6)}", "command": ["true"]}
    if world.dice.random() < 0.6:
        return {"task": msgspec.convert(task, TaskRequest)}
    tasks = [{"ref": ref, "depends_on": upstreams} for ref, upstreams in GRAPH.items()]
    return {"graph": msgspec.convert({"tasks": tasks, "defaults": task}, GraphRequest)}
