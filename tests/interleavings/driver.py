"""Schedules the actors: decides whose statement runs next, and which actor crashes.

The driver opens one gate at a time and then waits until everybody stands still: at a
gate, at an end, or behind a lock that another actor holds. Who waits behind a lock is
seen in PostgreSQL itself, so what is explored is what PostgreSQL would let happen.
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
PACES = (0.03, 0.03, 1.0, 1.0, 1.0)
"""How fast an actor is: a slow one stands before its next statement while much happens."""
MOMENT = 0.003
LOOKS = 3000
"""So many moments are waited for somebody; not by a clock, because all of us may be stopped."""


class Stuck(AssertionError):
    """Nobody can take a step, and nobody is done."""


class Driver:
    """Runs actors in an order that its dice decide."""

    def __init__(
        self,
        monitor: asyncpg.Connection,
        dice: Random,
        harm: float,
        after: Callable[[], Coroutine[None, None, None]],
    ) -> None:
        self.trace: list[str] = []
        self.actors: list[Actor] = []
        self.slow: tuple[str, ...] = ()
        """How the names of those end who are always slow."""
        self._monitor = monitor
        self._dice = dice
        self._harm = harm
        self._after = after
        self._arrived = asyncio.Event()

    def start(self, name: str, work: Callable[[], Coroutine[None, None, None]]) -> Actor:
        """Let an actor begin; it runs until its first gate."""
        pace = min(PACES) if name.endswith(self.slow) else self._dice.choice(PACES)
        actor = Actor(name, pace, self._arrived)
        context = copy_context()
        context.run(CURRENT.set, actor)
        actor.task = asyncio.get_running_loop().create_task(
            self._live(actor, work), context=context
        )
        self.actors.append(actor)
        self.note(f"{name}: begins")
        return actor

    def note(self, line: str) -> None:
        """Add a line to the story of this run."""
        self.trace.append(line)

    async def _live(self, actor: Actor, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
            self.note(f"{actor.name}: ends")
        except DulyError as error:
            self.note(f"{actor.name}: is told {type(error).__name__}: {error}")
            if type(error) is Unstorable:
                raise  # Nobody here asks for anything that a constraint could forbid.
        except asyncpg.DeadlockDetectedError:
            self.note(f"{actor.name}: is told of a deadlock")
            raise
        finally:
            self._arrived.set()

    async def step(self) -> bool:
        """Let one actor go on; False when nobody can."""
        ready = [actor for actor in self.actors if actor.at is not None]
        if not ready:
            return False
        [actor] = self._dice.choices(ready, [actor.pace for actor in ready])
        fate = self._dice.choice(FATES) if self._dice.random() < self._harm else Fate.DONE
        harm = "" if fate is Fate.DONE else f"  ✗ {fate.value}"
        self.note(f"{actor.name}: {actor.at}{harm}")
        actor.let_go(fate)
        await self.settle()
        return True

    async def settle(self) -> None:
        """Wait until everybody stands still."""
        for _ in range(LOOKS):
            # Between two statements an actor needs a few turns of the loop, and no I/O.
            for _ in range(6):
                await asyncio.sleep(0)
            flying = [actor for actor in self.actors if actor.in_statement and not actor.is_done]
            if not flying:
                break
            if not await self._arrival() and await self._are_blocked(flying):
                break
        else:
            raise Stuck(f"{', '.join(actor.name for actor in flying)} never stand still")
        self._bury()
        await self._after()

    async def _arrival(self) -> bool:
        self._arrived.clear()
        try:
            async with asyncio.timeout(MOMENT):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    async def _are_blocked(self, flying: list[Actor]) -> bool:
        rows = await self._monitor.fetch(BLOCKED, [actor.pid for actor in flying])
        return len(rows) == len(flying)

    def _bury(self) -> None:
        for actor in [actor for actor in self.actors if actor.is_done]:
            self.actors.remove(actor)
            if not actor.task.cancelled():
                actor.task.result()

    async def finish(self, *chores: Callable[[], Coroutine[None, None, object]]) -> None:
        """Let everybody come to an end, without harm; `chores` answer those who still wait."""
        self._harm = 0.0
        await self._exhaust()
        for chore in chores:
            await chore()
        await self._exhaust()
        if any(actor.in_statement for actor in self.actors):
            raise Stuck("a lock is held by nobody who can go on")
        for actor in self.actors:
            actor.task.cancel()
        await self.settle()

    async def _exhaust(self) -> None:
        await self.settle()
        while await self.step():
            pass

    def kill(self, prefix: str) -> None:
        """Let all actors die whose name begins so, wherever they are."""
        for actor in self.actors:
            if actor.name.startswith(prefix):
                actor.task.cancel()
