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

MIN_CPU_MILLI = 500
OVERRIDES = ({"cpu_milli": MIN_CPU_MILLI}, {"cpu_milli": 1000}, {"cpu_milli": 2500}, {}, {})
MAX_NODES = 4


async def remove(world: World, server: Server, node: Node) -> None:
    """Remove a node, and add one with another name in its place."""
    await server.cluster_manager.remove(node.id)
    world.record("removed", node.id)
    world.has_changed = True
    if len(world.nodes) < MAX_NODES:
        await world.make_node()


async def override(world: World, server: Server, node: Node) -> None:
    await server.cluster_manager.override_capacity(node.id, world.rng.choice(OVERRIDES))
    world.has_changed = True


async def reserve(world: World, server: Server, node: Node) -> None:
    reservation = await server.reservations.reserve(
        CLIENT,
        _random_resources(world),
        node_id=world.rng.choice((None, node.id)),
        expires_at=_random_expiry(world),
    )
    world.reserved.append(reservation)
    world.record("reserved", reservation)


async def change(world: World, server: Server, reservation: int) -> None:
    request = world.record("request", reservation)
    resources = world.rng.choice((None, _random_resources(world)))
    expires_at = world.rng.choice((msgspec.UNSET, _random_expiry(world)))
    with _forgetting_missing(world, reservation):
        await server.reservations.change(CLIENT, reservation, resources, expires_at)
    world.record("changed", reservation, request=request)
    world.has_changed = True


async def release(world: World, server: Server, reservation: int) -> None:
    world.record("releases", reservation)
    with _forgetting_missing(world, reservation):
        await server.reservations.release(CLIENT, reservation)
    world.has_changed = True


@contextmanager
def _forgetting_missing(world: World, reservation: int) -> Iterator[None]:
    """Forget a reservation once the server says that it does not exist."""
    try:
        yield
    except NotFound:
        if reservation in world.reserved:
            world.reserved.remove(reservation)
        raise


async def drop_expired(world: World) -> None:
    """Drop expired reservations, as the loop of the server does."""
    async with world.database.connection() as conn:
        await reservations.drop_expired(conn)
    world.has_changed = True


def _random_resources(world: World) -> Resources:
    return Resources(cpu_milli=world.rng.choice((500, 500, 1000)))


def _random_expiry(world: World) -> datetime | None:
    return world.rng.choice((None, world.now + timedelta(seconds=2)))
