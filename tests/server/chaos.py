"""Whatever can happen to tasks that wait, at random."""

from contextlib import suppress

from duly.errors import NotFound
from duly.model.requests.amounts import ResourcesRequest
from duly.model.run_time import RunTimeEstimate
from duly.model.task import Outcome
from duly.policy.queueing import rank
from tests.server.lab import seconds

EXPECTED_SECONDS = {"short": 0.123456, "middling": 60.5, "long": 5000.0}
"""Of tasks by name."""


class Chaos:
    """Does whatever can be done to tasks, at random, and knows who should run after that."""

    def __init__(self, lab, node, room, dice, clients=None):
        self.clients = clients or [lab.client, lab.stranger]
        self.lab = lab
        self.node = node
        self.room = room
        self.dice = dice
        self.running = {}
        estimates = lab.components.run_times._estimates
        for client in self.clients:
            for name, expected in EXPECTED_SECONDS.items():
                estimates[client.tenant_id, name] = RunTimeEstimate(seconds(expected))

    async def rows(self, status):
        return await self.lab.conn.fetch("select * from live where status = $1 order by id", status)

    async def step(self):
        acts = [self.submit] * 6 + [self.cancel] * 2 + [self.update, self.recount, self.pass_time]
        await self.dice.choice(acts)()
        for ref in await self.node.starts(*self.running.values()):
            self.running[ref.task] = ref
        if self.running and self.dice.random() < 0.5:
            await self.end()
        await self.node.heartbeat(*self.running.values())

    async def submit(self):
        if len(await self.rows("waiting")) > 60:
            return
        count, by = self.dice.choice((1, 1, 3, 12)), self.dice.choice(self.clients)
        await self.lab.submit_all([self.spec() for _ in range(count)], by=by)

    def spec(self):
        memory = self.dice.choice((100, 101, 102))
        return self.lab.spec(
            resources=ResourcesRequest(cpu=1, memory_mb=memory),
            delay_tolerance=self.dice.choice((5, 20, 60)),
            priority=self.dice.choice((0, 0, 0, 1)),
            execution_cap=self.dice.choice((3600, 3600, 60)),
            name=self.dice.choice((None, None, *EXPECTED_SECONDS)),
        )

    async def cancel(self):
        if waiting := await self.rows("waiting"):
            task = self.dice.choice(waiting[:4])["id"]
            await self.lab.components.canceller.cancel(self.lab.client, [task])

    async def update(self):
        if waiting := await self.rows("waiting"):
            other = {"resources": {"cpu": 1, "memory_mb": 103}}
            changes = self.dice.choice(({"priority": 2}, {"priority": 0}, other))
            task = self.dice.choice(waiting)["id"]
            with suppress(NotFound):  # It may be the stranger's.
                await self.lab.components.updater.update(self.lab.client, task, changes)

    async def recount(self):
        self.lab.components.resource_manager._prioritizer.request_recount()

    async def pass_time(self):
        await self.lab.clock.move(seconds(self.dice.choice((0.1, 0.3, 1.2))))
        await self.node.heartbeat(*self.running.values())
        await self.lab.sweep()

    async def end(self):
        for task in self.dice.sample(sorted(self.running), self.dice.randint(1, len(self.running))):
            outcome = self.dice.choice((Outcome.SUCCEEDED, Outcome.SUCCEEDED, Outcome.FAILED))
            await self.node.report(self.running.pop(task), outcome)

    async def chosen(self):
        """Return who runs, and then who of one tenant comes first as far as there is room."""
        running = {row["id"] for row in await self.rows("running")}
        waiting = sorted(map(Row, await self.rows("waiting")), key=rank)
        return running | {row.id for row in waiting[: self.room - len(running)]}


class Row:
    def __init__(self, columns):
        self.__dict__.update(columns)
        self.expected_run_time = columns["expected_run_time"] or columns["execution_cap"]
