"""A second tenant, whose plan has limits, and what an administrator does to it meanwhile."""

from datetime import timedelta

import asyncpg

from duly.model.requests.task_request import ConcurrencyRequest, TaskRequest, complete
from duly.model.task import TaskSpec
from duly.model.tenant import Credential, Plan
from tests.interleavings.participants import Server
from tests.interleavings.world import CLIENT, World

ID = 1000
BURST = 4
PER_SECOND = 1
MOST = 2
"""How many of its tasks may run at once, until that is changed."""
PLAN = Plan(
    name="small",
    delay_tolerance=timedelta(minutes=5),
    execution_cap=timedelta(hours=1),
    max_execution_cap=timedelta(hours=1),
    weight=1,
    tasks_per_hour=3600 * PER_SECOND,
    burst=BURST,
)
SMALL = Credential(
    tenant_id=ID, tenant="small", user_id=None, user=None, scopes=frozenset(), plan=PLAN
)
KEYS = (None, None, "s", "t")


async def prepare(conn: asyncpg.Connection) -> None:
    """Make the tenant as it is before a run."""
    await conn.execute("delete from buckets")
    await conn.execute("delete from tenants where id = $1", ID)
    await conn.execute("delete from plans where name = 'small'")
    await conn.execute(
        """insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,
                              tasks_per_hour, burst, max_running)
           values ('small', '5 m', '1 h', '1 h', 1, $1, $2, $3)""",
        PLAN.tasks_per_hour,
        BURST,
        MOST,
    )
    await conn.execute(
        "insert into tenants (id, name, plan) overriding system value "
        "values ($1, 'small', 'small')",
        ID,
    )


async def submit(world: World, server: Server, key: str | None) -> None:
    """Submit one task, which may have been submitted before."""
    spec = _spec(world, key)
    answer = await server.submitter.submit(SMALL, spec)
    world.told.small.append((key, answer.id))


async def submit_batch(world: World, server: Server, keys: list[str | None]) -> None:
    """Submit some tasks at once, of which some may have been submitted before."""
    specs = [_spec(world, key) for key in keys]
    batch = await server.submitter.submit_batch(SMALL, specs)
    world.is_stirred = True
    world.told.small += zip(keys, batch.ids, strict=True)


async def suspend(world: World, server: Server) -> None:
    """Suspend the tenant, or let it go on."""
    if world.dice.random() < 0.5:
        await server.tenants.suspend(CLIENT, ID)
    else:
        await server.tenants.resume(CLIENT, ID)
    world.is_stirred = True


async def replan(world: World, server: Server) -> None:
    """Let more or fewer of its tasks run at once."""
    most = world.dice.choice((1, MOST))
    await server.plans.update_plan(CLIENT, PLAN.name, {"max_running": most})
    world.is_stirred = True


def _spec(world: World, key: str | None) -> TaskSpec:
    asks = key is None and world.dice.random() < 0.5
    concurrency = ConcurrencyRequest(key="one", limit=1) if asks else None
    return complete(
        TaskRequest(command=["true"], idempotency_key=key, concurrency=concurrency), PLAN
    )
