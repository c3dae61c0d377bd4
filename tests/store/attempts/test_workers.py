"""What a lease refuses on a worker, and on an agent, whatever the placement says."""

import re
from datetime import timedelta
from importlib import resources

import pytest

from duly.model.resources import ONE_SLOT, Resources
from duly.model.shape import FunctionRef, Shape
from duly.store.attempts import leases
from duly.store.fleet import fleet_snapshot, nodes
from duly.store.fleet.servers import Term
from duly.store.tasks import tasks
from tests.store.rows import add_live, first_id

TTL = timedelta(minutes=1)
MINE, OTHERS = 1, 2
COMMAND = Shape(Resources(cpu_milli=500))


def call_of(tenant_id):
    return Shape(ONE_SLOT, function=FunctionRef(tenant_id, "shop:encode"))


async def join(conn, name, tenant_id):
    node = await nodes.add(conn, name, name.encode(), {}, tenant_id=tenant_id)
    functions = None if tenant_id is None else ["shop:encode"]
    return node, await nodes.join(
        conn, node, Resources(extra={"slots": 4}), {}, "process", "1", {}, ttl=TTL,
        functions=functions,
    )  # fmt: skip


@pytest.fixture
async def fleet(conn):
    """Two tenants, a worker of each, and an agent."""
    await conn.execute("insert into duly.tenants (id, name, plan) overriding system value "
                       "values (2, 'others', 'unlimited')")  # fmt: skip
    await conn.execute("insert into duly.terms values ('scheduling', 1, 1, duly.now(), 'infinity')")
    joined = {name: await join(conn, name, tenant) for name, tenant in
              (("agent", None), ("mine", MINE), ("theirs", OTHERS))}  # fmt: skip
    return {name: incarnation for name, (_, incarnation) in joined.items()}


async def can_lease(conn, shape, incarnation, *, tenant_id=MINE):
    key = tasks.shape_key(shape)
    shape_id = (await tasks.intern_shapes(conn, {key: shape}))[key]
    task = await first_id(conn)
    await conn.execute("delete from duly.live")
    await add_live(conn, task, shape_id=shape_id, tenant_id=tenant_id)
    fence = (await fleet_snapshot.read_snapshot(conn)).fence
    leased = await leases.lease(
        conn,
        Term(1, 1),
        [(task, incarnation, 0, shape_id)],
        revision=fence.revision,
        given=None,
        backstop=timedelta(0),
    )
    return bool(leased)


CASES = [
    ("a command on an agent", COMMAND, "agent", MINE, True),
    ("a call on a worker of its tenant", call_of(MINE), "mine", MINE, True),
    ("a call on an agent", call_of(MINE), "agent", MINE, False),
    ("a command on a worker of its tenant", COMMAND, "mine", MINE, False),
    ("a call on another tenant's worker", call_of(MINE), "theirs", MINE, False),
]


@pytest.mark.parametrize(
    ("shape", "node", "tenant_id", "is_leased"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
async def test_a_worker_gets_calls_of_its_tenant_and_nothing_else(
    conn, fleet, shape, node, tenant_id, is_leased
):
    assert await can_lease(conn, shape, fleet[node], tenant_id=tenant_id) is is_leased


@pytest.mark.parametrize(
    ("guard", "shape", "node"),
    [
        (
            "and (n.tenant_id is not null) = (placement.shape = any(called))",
            call_of(MINE),
            "agent",
        ),
        ("and (n.tenant_id is not null) = (placement.shape = any(called))", COMMAND, "mine"),
        (
            "and (l.tenant_id = (tenants)[width_bucket(l.id, ids)]) is not false",
            call_of(MINE),
            "theirs",
        ),
    ],
)
async def test_without_its_guard_a_lease_would_be_made(conn, fleet, guard, shape, node):
    schema = resources.files("duly.store").joinpath("migrations/0001_schema.sql").read_text()
    text = re.search(r"create function lease_tasks\(.*?\n\$\$;", schema, re.DOTALL)[0]
    assert text.count(guard) == 1
    mutant = text.replace("create function ", "create or replace function duly.")
    await conn.execute(mutant.replace(guard, ""))
    assert await can_lease(conn, shape, fleet[node])


async def test_a_snapshot_knows_workers_and_reads_their_functions_once(conn, fleet):
    first = await fleet_snapshot.read_snapshot(conn)
    assert {id_: worker.tenant_id for id_, worker in first.workers.items()} == {
        fleet["mine"]: MINE,
        fleet["theirs"]: OTHERS,
    }
    offers = {offer.incarnation_id: offer.worker for offer in first.free({})}
    assert offers[fleet["agent"]] is None
    assert offers[fleet["mine"]].functions == {"shop:encode"}
    await conn.execute("update duly.incarnations set functions = '{}' where functions is not null")
    again = await fleet_snapshot.read_snapshot(conn, workers=first.workers)
    assert again.workers == first.workers


async def test_another_number_of_slots_is_another_offer(conn, fleet):
    async def beat(name, slots):
        incarnation = fleet[name]
        node = await conn.fetchval(
            "select node_id from duly.incarnations where id = $1", incarnation
        )
        await nodes.renew(conn, [nodes.Heartbeat(incarnation, node, slots=slots)], ttl=TTL)
        row = await conn.fetchrow(
            "select capacity, revision from duly.incarnations where id = $1", incarnation
        )
        return row["capacity"].get("extra"), row["revision"]

    assert await beat("mine", None) == ({"slots": 4}, 0)
    assert await beat("mine", 4) == ({"slots": 4}, 0)
    assert await beat("mine", 9) == ({"slots": 9}, 1)
    assert await beat("agent", 9) == ({"slots": 4}, 0)


async def test_workers_of_two_tenants_may_have_one_name_and_of_one_may_not(conn, fleet):
    assert await nodes.add(conn, "mine", b"x", {}, tenant_id=OTHERS) is not None
    assert await nodes.add(conn, "mine", b"y", {}, tenant_id=MINE) is None


async def test_what_could_ever_run_a_command_leaves_workers_out(conn, fleet):
    assert len(await leases.read_known_nodes(conn)) == 1
