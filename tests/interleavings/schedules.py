"""Operations on schedules: create, fire, change, pause, remove, run now and backfill."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.model.requests.graph_request import GraphRequest
from duly.model.requests.schedule_request import ScheduleRequest
from duly.model.requests.task_request import TaskRequest
from tests.interleavings.participants import Server
from tests.interleavings.world import CLIENT, World

MAX_SCHEDULES = 2
INTERVAL_SECONDS = 2
GRAPH = {"a": [], "b": [], "c": ["a", "b"]}
"""The refs of a graph's tasks, and what each depends on."""
OFFSET = timedelta(seconds=0.25)
"""Keeps fire times apart from the times at which schedules may be run by hand."""


def is_fire_time(at: datetime) -> bool:
    """Return True if `at` comes from the recurrence, not from a run by hand."""
    return at.microsecond % 500_000 != 0


async def create(world: World, server: Server) -> None:
    """Create a schedule, unless there are MAX_SCHEDULES."""
    if len(world.schedules) < MAX_SCHEDULES:
        request = ScheduleRequest(
            **_random_template(world),
            every=f"{INTERVAL_SECONDS}s",
            start_at=(world.now + OFFSET).isoformat(),
            misfire=world.rng.choice(("once", "all", "all")),
            overlap=world.rng.choice(("allow", "skip", "cancel_other", "queue", "queue")),
        )
        world.schedules.append(await server.schedules.create(CLIENT, request))


async def fire(world: World, server: Server) -> None:
    """Tick the timekeeper; nothing may be written after the end of its term."""
    term = server.cluster_manager.term
    request = world.record("request", 0)
    await server.timekeeper.tick()
    if term is not None:
        world.record("fired", term.number, request=request)


async def change(world: World, server: Server, schedule: int) -> None:
    """Change the template of a schedule."""
    await server.schedules.update(CLIENT, schedule, msgspec.to_builtins(_random_template(world)))


async def pause(world: World, server: Server, schedule: int) -> None:
    """Pause or resume a schedule."""
    if world.rng.random() < 0.5:
        await server.schedules.pause(CLIENT, schedule)
    else:
        await server.schedules.resume(CLIENT, schedule)


async def run(world: World, server: Server, schedule: int) -> None:
    """Run a schedule by hand."""
    occurrence = await server.schedules.run(CLIENT, schedule)
    world.occurrences.append(occurrence.ids)
    world.has_changed = True


async def backfill(world: World, server: Server, schedule: int) -> None:
    """Backfill the last few fire times, including one that is due but has not fired."""
    before = world.now - timedelta(
        seconds=world.rng.choice((INTERVAL_SECONDS, 3 * INTERVAL_SECONDS))
    )
    await server.schedules.backfill(CLIENT, schedule, before, world.now)
    world.has_changed = True


async def cancel_occurrence(world: World, server: Server) -> None:
    """Cancel an occurrence that was run by hand, although others may be queued behind it."""
    if world.occurrences:
        await server.canceller.cancel(CLIENT, world.rng.choice(world.occurrences))


async def remove(world: World, server: Server, schedule: int) -> None:
    before = world.now
    await server.schedules.remove(CLIENT, schedule)
    world.acknowledged.removals[schedule] = before
    if schedule in world.schedules:
        world.schedules.remove(schedule)


def _random_template(world: World) -> dict[str, Any]:
    """Return a task or a graph whose tasks have a unique name."""
    task = {"name": f"fired {world.rng.randrange(10**6)}", "command": ["true"]}
    if world.rng.random() < 0.6:
        return {"task": msgspec.convert(task, TaskRequest)}
    tasks = [{"ref": ref, "depends_on": upstreams} for ref, upstreams in GRAPH.items()]
    return {"graph": msgspec.convert({"tasks": tasks, "defaults": task}, GraphRequest)}
