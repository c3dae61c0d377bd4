"""Schedules the actors: decides whose statement runs next, and which actor crashes.

The driver opens one gate at a time and then waits until all actors are idle: at a gate, at their
end, or blocked by a lock of another actor. Which actors are blocked is read from PostgreSQL itself,
so only orders that PostgreSQL allows are explored.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from random import Random

import asyncpg

from duly.errors import DulyError
from duly.store.database import Unstorable
from tests.interleavings.stepped_database import CURRENT, Actor, Fate

FATES = (Fate.DIED_BEFORE, Fate.DIED_AFTER, Fate.LOST_BEFORE, Fate.LOST_AFTER)
BLOCKED = "select distinct pid from pg_locks where not granted and pid = any($1::int[])"
SPEEDS = (0.03, 0.03, 1.0, 1.0, 1.0)
"""Weights of actors in the draw of the next step: much happens between two steps of a slow one."""
POLL_SECONDS = 0.003
MAX_POLLS = 3000
"""Bounds the wait for idle actors by a count, because a clock also runs while we are suspended."""


class Stuck(AssertionError):
    """No actor can take a step, and not all of them are done."""


class Driver:
    """Runs actors in a random order of statements."""

    def __init__(
        self,
        monitor: asyncpg.Connection,
        rng: Random,
        fault_rate: float,
        on_idle: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        self.trace: list[str] = []
        self.actors: list[Actor] = []
        self.slow: tuple[str, ...] = ()
        """Suffixes of the names of actors that are always slow."""
        self._monitor = monitor
        self._dice = rng
        self._fault_rate = fault_rate
        self._on_idle = on_idle
        self._arrived = asyncio.Event()

    def start(self, name: str, work: Callable[[], Coroutine[None, None, None]]) -> Actor:
        """Start an actor; it runs until its first gate."""
        speed = min(SPEEDS) if name.endswith(self.slow) else self._dice.choice(SPEEDS)
        actor = Actor(name, speed, self._arrived)
        context = copy_context()
        context.run(CURRENT.set, actor)
        actor.task = asyncio.get_running_loop().create_task(self._run(actor, work), context=context)
        self.actors.append(actor)
        self.note(f"{name}: starts")
        return actor

    def note(self, line: str) -> None:
        """Add a line to the trace of this run."""
        self.trace.append(line)

    async def _run(self, actor: Actor, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
            self.note(f"{actor.name}: ends")
        except DulyError as error:
            self.note(f"{actor.name}: gets {type(error).__name__}: {error}")
            if type(error) is Unstorable:
                raise  # No operation of the explorer may violate a constraint.
        except asyncpg.DeadlockDetectedError:
            self.note(f"{actor.name}: gets a deadlock error")
            raise
        finally:
            self._arrived.set()

    async def step(self) -> bool:
        """Let one actor execute its next statement; return False if none can."""
        ready = [actor for actor in self.actors if actor.waiting_at is not None]
        if not ready:
            return False
        [actor] = self._dice.choices(ready, [actor.speed for actor in ready])
        fate = self._dice.choice(FATES) if self._dice.random() < self._fault_rate else Fate.DONE
        suffix = "" if fate is Fate.DONE else f"  ✗ {fate.value}"
        self.note(f"{actor.name}: {actor.waiting_at}{suffix}")
        actor.open_gate(fate)
        await self.settle()
        return True

    async def settle(self) -> None:
        """Wait until all actors are idle."""
        for _ in range(MAX_POLLS):
            # Between two statements an actor needs a few iterations of the loop, and no I/O.
            for _ in range(6):
                await asyncio.sleep(0)
            executing = [actor for actor in self.actors if actor.in_statement and not actor.is_done]
            if not executing:
                break
            if not await self._wait_for_arrival() and await self._are_blocked(executing):
                break
        else:
            raise Stuck(f"{', '.join(actor.name for actor in executing)} never become idle")
        self._reap()
        await self._on_idle()

    async def _wait_for_arrival(self) -> bool:
        self._arrived.clear()
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    async def _are_blocked(self, executing: list[Actor]) -> bool:
        rows = await self._monitor.fetch(BLOCKED, [actor.pid for actor in executing])
        return len(rows) == len(executing)

    def _reap(self) -> None:
        for actor in [actor for actor in self.actors if actor.is_done]:
            self.actors.remove(actor)
            if not actor.task.cancelled():
                actor.task.result()

    async def finish(self, *chores: Callable[[], Coroutine[None, None, object]]) -> None:
        """Run all actors to their end, without faults; `chores` respond to waiting ones."""
        self._fault_rate = 0.0
        await self._run_to_end()
        for chore in chores:
            await chore()
        await self._run_to_end()
        if any(actor.in_statement for actor in self.actors):
            raise Stuck("every remaining actor is blocked by a lock")
        for actor in self.actors:
            actor.task.cancel()
        await self.settle()

    async def _run_to_end(self) -> None:
        await self.settle()
        while await self.step():
            pass

    def kill(self, prefix: str) -> None:
        """Cancel all actors whose names begin with `prefix`, wherever they are."""
        for actor in self.actors:
            if actor.name.startswith(prefix):
                actor.task.cancel()
