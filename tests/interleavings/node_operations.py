"""Operations of administrators on nodes: remove, override capacity, reserve resources."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec

from duly.errors import NotFound
from duly.model.resources import Resources
from duly.store.fleet import reservations
from tests.interleavings.participants import Node, Server
from tests.interleavings.world import CLIENT, World

SMALLEST = 500
OVERRIDES = ({"cpu_milli": SMALLEST}, {"cpu_milli": 1000}, {"cpu_milli": 2500}, {}, {})
MOST_NODES = 4


async def remove(world: World, server: Server, node: Node) -> None:
    """Take a node away for good, and put a machine with another name in its place."""
    await server.cluster_manager.remove(node.id)
    world.tell("removed", node.id)
    world.is_stirred = True
    if len(world.nodes) < MOST_NODES:
        await world.make_node()


async def override(world: World, server: Server, node: Node) -> None:
    await server.cluster_manager.override_capacity(node.id, world.dice.choice(OVERRIDES))
    world.is_stirred = True


async def reserve(world: World, server: Server, node: Node) -> None:
    made = await server.reservations.reserve(
        CLIENT,
        _some(world),
        node_id=world.dice.choice((None, node.id)),
        expires_at=_until(world),
    )
    world.reserved.append(made)
    world.tell("reserved", made)


async def change(world: World, server: Server, reservation: int) -> None:
    asked = world.tell("asked", reservation)
    resources = world.dice.choice((None, _some(world)))
    expires_at = world.dice.choice((msgspec.UNSET, _until(world)))
    with _noticing(world, reservation):
        await server.reservations.change(CLIENT, reservation, resources, expires_at)
    world.tell("changed", reservation, asked=asked)
    world.is_stirred = True


async def release(world: World, server: Server, reservation: int) -> None:
    world.tell("releases", reservation)
    with _noticing(world, reservation):
        await server.reservations.release(CLIENT, reservation)
    world.is_stirred = True


@contextmanager
def _noticing(world: World, reservation: int) -> Iterator[None]:
    """Speak no more of a reservation that is said to be gone."""
    try:
        yield
    except NotFound:
        if reservation in world.reserved:
            world.reserved.remove(reservation)
        raise


async def forget(world: World) -> None:
    """Do what the loop does that forgets reservations that are over."""
    async with world.database.connection() as conn:
        await reservations.drop_expired(conn)
    world.is_stirred = True


def _some(world: World) -> Resources:
    return Resources(cpu_milli=world.dice.choice((500, 500, 1000)))


def _until(world: World) -> datetime | None:
    return world.dice.choice((None, world.now + timedelta(seconds=2)))
