"""Tenants share the fleet by weight, whoever floods it and whatever they call urgent."""

from collections import Counter
from random import Random

from duly.api.requests.lookups import read_task_with_reason
from duly.model.task import Outcome
from duly.model.tenant import Scope
from duly.store.accounts import tenants
from tests.server.lab import seconds

TICK = 0.5
"""Seconds."""


class Fleet:
    """A node whose tasks run for a while, each for a time of its own, by the lab's clock."""

    def __init__(self, lab, node, dice):
        self.lab = lab
        self.node = node
        self.dice = dice
        self.owners = {}
        self.running = {}
        self.began = {}
        """When each task started, in seconds since the first tick."""
        self.now = 0.0
        self.served = Counter()
        """The seconds that tasks of each tenant have run."""

    async def submit(self, by, count, **fields):
        answers = await self.lab.submit_all([self.lab.spec(cpu=1, **fields)] * count, by=by)
        self.owners.update((answer.id, by.tenant_id) for answer in answers)

    async def tick(self):
        """Start what can be started, then let time pass and end what has run for long enough."""
        await self.lab.components.cluster_manager.tick()
        while await self.lab.components.resource_manager.tick():
            pass
        for ref in await self.node.starts(*(ref for ref, _ in self.running.values())):
            self.running[ref.task] = ref, self.now + self.dice.uniform(1, 3)
            self.began[ref.task] = self.now
        await self.lab.clock.move(seconds(TICK))
        self.now += TICK
        await self.node.heartbeat(*(ref for ref, _ in self.running.values()))
        for task, (ref, ends_at) in list(self.running.items()):
            self.served[self.owners[task]] += TICK
            if ends_at <= self.now:
                del self.running[task]
                await self.node.report(ref, Outcome.SUCCEEDED)


async def tenant(lab, name, weight=None):
    await lab.conn.execute(
        "insert into tenants (name, plan, weight) values ($1, 'unlimited', $2)", name, weight
    )
    return await lab.credential(name)


async def test_a_flood_of_one_tenant_does_not_delay_the_others(lab):
    fleet = Fleet(lab, await lab.node(cpu=4), Random(1))
    await fleet.submit(lab.client, 200)
    for _ in range(4):
        await fleet.tick()
    late = fleet.now
    small = [await tenant(lab, "small-1"), await tenant(lab, "small-2")]
    for by in small:
        await fleet.submit(by, 4)
    while sum(fleet.owners[task] != lab.client.tenant_id for task in fleet.began) < 8:
        await fleet.tick()
    # Each is entitled to a third of four slots, so that four tasks of 2 s take about 8 s.
    assert fleet.now - late < 12


async def test_capacity_is_divided_by_weight(lab):
    fleet = Fleet(lab, await lab.node(cpu=10), Random(2))
    clients = [await tenant(lab, f"weight-{weight}", weight) for weight in (1, 2, 4)]
    for by in clients:
        await fleet.submit(by, 600)
    for _ in range(240):
        await fleet.tick()
    one, two, four = (fleet.served[by.tenant_id] for by in clients)
    assert 1.9 < two / one < 2.1
    assert 3.8 < four / one < 4.2


async def test_marking_everything_as_urgent_gains_nothing_beyond_the_fair_share(lab):
    fleet = Fleet(lab, await lab.node(cpu=6), Random(3))
    hasty, calm = await tenant(lab, "hasty"), await tenant(lab, "calm")
    await fleet.submit(hasty, 250, queue="urgent")
    await fleet.submit(calm, 250)
    for _ in range(120):
        await fleet.tick()
    assert fleet.served[hasty.tenant_id] < 1.05 * fleet.served[calm.tenant_id]


async def test_use_of_other_nodes_does_not_count_in_the_pool_of_a_task(lab):
    plain = await lab.node(cpu=4)
    labelled = await lab.node(cpu=2, labels={"disk": "fast"})
    rich, poor = await tenant(lab, "rich"), await tenant(lab, "poor")
    needs_label = lab.spec(cpu=1, requires={"disk": "fast"})
    await lab.submit_all([lab.spec(cpu=1)] * 4, by=rich)
    await lab.schedule()
    assert len(await lab.run_on(plain)) + len(await lab.run_on(labelled)) == 4
    await lab.submit_all([needs_label] * 2, by=rich)
    await lab.submit_all([needs_label] * 2, by=poor)
    for ref in await labelled.starts():
        await labelled.report(ref, Outcome.SUCCEEDED)
    while await lab.components.resource_manager.tick():
        pass
    rows = await lab.conn.fetch(
        "select tenant_id from live where node_id = $1 and status = 'running'", labelled.id
    )
    assert Counter(row["tenant_id"] for row in rows) == {rich.tenant_id: 1, poor.tenant_id: 1}


async def test_a_changed_weight_counts_from_the_next_round(lab):
    fleet = Fleet(lab, await lab.node(cpu=6), Random(4))
    light, heavy = await tenant(lab, "light"), await tenant(lab, "heavy")
    for by in (light, heavy):
        await fleet.submit(by, 400)
    await fleet.tick()
    await lab.conn.execute("update tenants set weight = 5 where name = 'heavy'")
    for _ in range(160):
        await fleet.tick()
    before = fleet.served.copy()
    for _ in range(60):
        await fleet.tick()
    gained = fleet.served - before
    assert 4 < gained[heavy.tenant_id] / gained[light.tenant_id] < 6


async def test_tenants_whose_pools_overlap_compete_for_the_nodes_in_common(lab):
    plain, labelled = await lab.node(cpu=2), await lab.node(cpu=2, labels={"disk": "fast"})
    anywhere, choosy = await tenant(lab, "anywhere"), await tenant(lab, "choosy")
    await lab.submit_all([lab.spec(cpu=1)] * 40, by=anywhere)
    await lab.schedule()
    assert len(await lab.run_on(plain)) + len(await lab.run_on(labelled)) == 4
    await lab.submit_all([lab.spec(cpu=1, requires={"disk": "fast"})] * 2, by=choosy)
    for ref in await labelled.starts():
        await labelled.report(ref, Outcome.SUCCEEDED)
    while await lab.components.resource_manager.tick():
        pass
    # The others are due earlier, but their tenant has its half of the fleet already.
    rows = await lab.conn.fetch(
        "select tenant_id from live where node_id = $1 and status = 'running'", labelled.id
    )
    assert choosy.tenant_id in {row["tenant_id"] for row in rows}


async def users_of(lab, name, *, fair_users):
    """Return the credentials of two users of a new tenant."""
    await lab.conn.execute(
        "insert into tenants (name, plan, fair_users) values ($1, 'unlimited', $2)",
        name,
        fair_users,
    )
    keys = [
        await tenants.create_key(lab.conn, name, user, [Scope.SUBMIT]) for user in ("ann", "bob")
    ]
    return [await lab.components.authenticator.authenticate(key) for key in keys]


async def first_starts(lab, name, *, fair_users):
    """Return the users of the first tasks that start after a flood of another user's."""
    ann, bob = await users_of(lab, name, fair_users=fair_users)
    fleet = Fleet(lab, await lab.node(cpu=4), Random(5))
    await fleet.submit(ann, 60)
    await fleet.tick()
    before = set(fleet.began)
    await fleet.submit(bob, 6)
    while len(fleet.began) < 16:
        await fleet.tick()
    ids = [task for task in fleet.began if task not in before]
    rows = await lab.conn.fetch("select user_id from tasks where id = any($1)", ids)
    return Counter(row["user_id"] for row in rows), ann.user_id, bob.user_id


async def test_users_share_fairly_if_their_tenant_asks_for_it(lab):
    started, ann, bob = await first_starts(lab, "team", fair_users=True)
    assert started[bob] >= 5
    assert started[ann] >= 5


async def test_users_of_other_tenants_start_by_deadline_alone(lab):
    started, _, bob = await first_starts(lab, "crowd", fair_users=False)
    assert started[bob] == 0


async def test_users_that_share_do_not_change_what_their_tenant_gets(lab):
    ann, bob = await users_of(lab, "team", fair_users=True)
    single = await tenant(lab, "single")
    fleet = Fleet(lab, await lab.node(cpu=6), Random(6))
    for by in (ann, bob, single):
        await fleet.submit(by, 250)
    for _ in range(120):
        await fleet.tick()
    assert 0.95 < fleet.served[single.tenant_id] / fleet.served[ann.tenant_id] < 1.05


async def test_a_task_tells_that_other_users_go_first(lab):
    ann, bob = await users_of(lab, "team", fair_users=True)
    node = await lab.node(cpu=2)
    submitted = await lab.submit_all([lab.spec(cpu=1)] * 3, by=ann)
    # Submits at the same time get ids in any order, and the highest starts last.
    last = max(submitted, key=lambda task: task.id)
    while await lab.components.resource_manager.tick():
        pass
    assert len(await lab.run_on(node)) == 2
    await lab.submit_all([lab.spec(cpu=1)], by=bob)
    _, reason = await read_task_with_reason(lab.components, ann, last.id)
    assert reason.code == "not_its_turn"
    assert reason.message == (
        "Its user uses 100 % of the fleet; its fair share is 50 %. 1 user below its share goes "
        "first."
    )
