"""Where calls of functions may run, and why they wait."""

import msgspec
import pytest

from duly.model.node import NodeProfile, Offer, Worker
from duly.model.resources import ONE_SLOT, Resources
from duly.model.shape import FunctionRef, Shape
from duly.policy.budget.peak import Load
from duly.policy.budget.queue_room import fleet_capacity
from duly.policy.explanation.workers import no_worker, workers_busy
from duly.policy.fairness.shares import SHARED_KINDS, Pool, pool_key
from duly.policy.placement import Ask, could_ever_fit, place, reasons_against

MINE, OTHERS = 1, 2
CALL = Shape(ONE_SLOT, function=FunctionRef(MINE, "shop:encode"))
COMMAND = Shape(Resources(cpu_milli=500))


def slots(count):
    return Resources(extra={"slots": count})


def worker(number, *functions, tenant_id=MINE, free=4, **fields):
    return Offer(
        node_id=number,
        incarnation_id=number,
        name=f"worker-{number}",
        capacity=slots(4),
        free=slots(free),
        worker=Worker(tenant_id, frozenset(functions)),
        **fields,
    )


def agent(number):
    room = Resources(cpu_milli=4000, memory_mb=4096, extra={"slots": 4})
    return Offer(node_id=number, incarnation_id=number, name="agent", capacity=room, free=room)


def placed(shape, *offers):
    asks = [Ask(number, 1, shape) for number in range(1, 7)]
    return [placement.incarnation for placement in place(asks, offers)]


@pytest.mark.parametrize(
    ("shape", "offer", "fits"),
    [
        (CALL, worker(1, "shop:encode"), True),
        (CALL, worker(1, "shop:other"), False),
        (CALL, worker(1, "shop:encode", tenant_id=OTHERS), False),
        (CALL, agent(1), False),
        (COMMAND, agent(1), True),
        (Shape(ONE_SLOT), worker(1, "shop:encode"), False),
        (msgspec.structs.replace(CALL, requires={"zone": "a"}), worker(1, "shop:encode"), False),
        (
            msgspec.structs.replace(CALL, requires={"zone": "a"}),
            worker(1, "shop:encode", labels={"zone": "a"}),
            True,
        ),
    ],
)
def test_calls_go_to_workers_of_their_tenant_that_know_them(shape, offer, fits):
    assert bool(placed(shape, offer)) is fits
    assert could_ever_fit(shape, [NodeProfile(offer.capacity, offer.labels, offer.worker)]) is fits
    assert bool(reasons_against(shape, offer)) is not fits


def test_a_worker_gets_as_many_calls_as_it_has_free_slots():
    assert placed(CALL, worker(1, "shop:encode", free=2), worker(2, "shop:encode")) == [
        1, 1, 2, 2, 2, 2,
    ]  # fmt: skip


def test_shapes_of_different_functions_are_of_different_kinds():
    other = msgspec.structs.replace(CALL, function=FunctionRef(MINE, "shop:other"))
    theirs = msgspec.structs.replace(CALL, function=FunctionRef(OTHERS, "shop:encode"))
    assert len({shape.kind for shape in (CALL, other, theirs, Shape(ONE_SLOT))}) == 4


def test_a_worker_is_no_part_of_what_tenants_share():
    offers = [agent(1), worker(2, "shop:encode", free=0)]
    assert [share.used for share in Load(offers).shares if share.kind == "slots"] == [0]
    assert fleet_capacity(offers) == agent(1).capacity
    pool = Pool(pool_key(CALL), offers, SHARED_KINDS)
    assert (pool.nodes, pool.fractions(ONE_SLOT)) == ({2}, ())
    assert Pool(pool_key(COMMAND), offers, SHARED_KINDS).nodes == {1}


@pytest.mark.parametrize(
    ("offers", "words"),
    [
        ([], "No worker knows the function 'shop:encode'. Start one: duly worker MODULE:APP."),
        (
            [agent(1), worker(2, "shop:encode", tenant_id=OTHERS)],
            "No worker knows the function 'shop:encode'. Start one: duly worker MODULE:APP.",
        ),
        (
            [worker(1, "shop:other")],
            "No worker knows the function 'shop:encode'; 1 worker is connected and knows others. "
            "Deploy it there, or start a worker of its app.",
        ),
    ],
)
def test_a_call_that_no_worker_knows_says_so(offers, words):
    reason = no_worker(CALL.function, offers)
    assert (reason.code, reason.message) == ("no_worker", words)


def test_a_call_whose_workers_are_busy_says_how_many_slots_are_taken():
    one, two = worker(1, "shop:encode", free=0), worker(2, "shop:encode", free=0)
    reason = workers_busy(CALL.function, [one])
    assert (reason.code, reason.message) == (
        "no_capacity",
        "Worker worker-1 is busy: its 4 slots are taken.",
    )
    assert workers_busy(CALL.function, [one, two]).message == (
        "All 2 workers that know it are busy: their 8 slots are taken."
    )
