"""Lets the auditor go round while time passes, and says what it has found."""

from datetime import datetime, timedelta

from duly.server.components import Components
from duly.store.maintenance import audit
from tests.server.lab import Lab, Node

MINUTE = timedelta(minutes=1)


class Watch:
    """A server whose auditor is driven by hand, and nodes that stay alive meanwhile."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.nodes: list[Node] = []

    async def node(self, *, cpu: float = 4) -> Node:
        """Let a node join that renews its lease as time passes."""
        self.nodes.append(await self.lab.node(cpu=cpu))
        return self.nodes[-1]

    async def go_round(self, components: Components | None = None) -> None:
        """Let the auditor look at everything once, as fast as it may."""
        components = components or self.lab.components
        before = await self.completed()
        for _ in range(500):
            await components.cluster_manager.tick()
            await components.auditor.tick()
            after = await self.completed()
            if len(after) == 2 and all(before.get(scope) != at for scope, at in after.items()):
                return
            await self.lab.clock.move(components.auditor.pause())
            for node in self.nodes:
                await node.heartbeat()
        raise AssertionError("the round has no end")

    async def wait(
        self, by: timedelta = MINUTE * 1.5, components: Components | None = None
    ) -> None:
        """Let time pass, in rounds."""
        components = components or self.lab.components
        until = self.lab.clock.now + by
        while self.lab.clock.now < until:
            await self.go_round(components)

    async def found(self) -> dict[str, set[int]]:
        """Return the drift after the time that it takes to be sure."""
        await self.wait()
        return await self.drift()

    async def drift(self) -> dict[str, set[int]]:
        """Return what the last rounds have found, by kind."""
        found: dict[str, set[int]] = {}
        for one in await self._read():
            for kind, seen in one.drift.items():
                found.setdefault(kind, set()).update(seen.examples)
        return found

    async def completed(self) -> dict[str, datetime]:
        """Return when the last round of each scope was complete."""
        return {one.scope.value: one.completed_at for one in await self._read()}

    async def total(self) -> int:
        """Return how many things were ever repaired."""
        return sum(one.repaired for one in await self._read())

    async def repaired(self, task: int) -> list[str]:
        """Return which kinds of drift were repaired of a task, as its events tell."""
        async with self.lab.database.connection() as conn:
            rows = await conn.fetch(
                "select details from events where task_id = $1 and kind = 'repaired' order by id",
                task,
            )
        return [row["details"]["drift"] for row in rows]

    async def _read(self) -> list[audit.Audit]:
        async with self.lab.database.connection() as conn:
            return await audit.read(conn)
