"""A second tenant, whose plan has limits, and operations of administrators on it."""

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
MAX_RUNNING = 2
"""The initial concurrency quota."""
PLAN = Plan(
    name="small",
    delay_tolerance=timedelta(minutes=5),
    execution_cap=timedelta(hours=1),
    max_execution_cap=timedelta(hours=1),
    weight=1,
    tasks_per_hour=3600 * PER_SECOND,
    burst=BURST,
)
LIMITED_CLIENT = Credential(
    tenant_id=ID, tenant="small", user_id=None, user=None, scopes=frozenset(), plan=PLAN
)
KEYS = (None, None, "s", "t")


async def prepare(conn: asyncpg.Connection) -> None:
    """Create the tenant in its initial state."""
    await conn.execute("delete from buckets")
    await conn.execute("delete from tenants where id = $1", ID)
    await conn.execute("delete from plans where name = 'small'")
    await conn.execute(
        """insert into plans (name, delay_tolerance, execution_cap, max_execution_cap, weight,
                              tasks_per_hour, burst, max_running)
           values ('small', '5 m', '1 h', '1 h', 1, $1, $2, $3)""",
        PLAN.tasks_per_hour,
        BURST,
        MAX_RUNNING,
    )
    await conn.execute(
        "insert into tenants (id, name, plan) overriding system value "
        "values ($1, 'small', 'small')",
        ID,
    )


async def submit(world: World, server: Server, key: str | None) -> None:
    """Submit one task, possibly a repetition."""
    spec = _spec(world, key)
    admitted = await server.submitter.submit(LIMITED_CLIENT, spec)
    world.acknowledged.limited_submits.append((key, admitted.id))


async def submit_batch(world: World, server: Server, keys: list[str | None]) -> None:
    """Submit a batch, of which some tasks may be repetitions."""
    specs = [_spec(world, key) for key in keys]
    batch = await server.submitter.submit_batch(LIMITED_CLIENT, specs)
    world.has_changed = True
    world.acknowledged.limited_submits += zip(keys, batch.ids, strict=True)


async def suspend(world: World, server: Server) -> None:
    """Suspend or resume the tenant."""
    if world.rng.random() < 0.5:
        await server.tenants.suspend(CLIENT, ID)
    else:
        await server.tenants.resume(CLIENT, ID)
    world.has_changed = True


async def change_quota(world: World, server: Server) -> None:
    """Change the concurrency quota of the plan."""
    max_running = world.rng.choice((1, MAX_RUNNING))
    await server.plans.update_plan(CLIENT, PLAN.name, {"max_running": max_running})
    world.has_changed = True


def _spec(world: World, key: str | None) -> TaskSpec:
    has_concurrency_key = key is None and world.rng.random() < 0.5
    concurrency = ConcurrencyRequest(key="one", limit=1) if has_concurrency_key else None
    return complete(
        TaskRequest(command=["true"], idempotency_key=key, concurrency=concurrency), PLAN
    )
