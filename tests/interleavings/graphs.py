"""Submits graphs, and cancels, pauses and resumes them as a whole."""

import msgspec

from duly.model.graph import Dependency
from duly.model.task import TaskSpec
from duly.server.lifecycle.graph_operations import NOTHING_LEFT, OperationProgress
from duly.store.tasks.graph_operations import OperationKind
from tests.interleavings.participants import Server
from tests.interleavings.world import CLIENT, CONDITIONS, World, spec_of

SHAPES = (((), ("a",), ("b",)), ((), ("a",), ("a",), ("b", "c")), ((), (), ("a", "b")))
"""What each task waits for."""
KINDS = (OperationKind.PAUSE, OperationKind.PAUSE, OperationKind.RESUME, OperationKind.CANCEL)


async def submit(world: World, server: Server) -> None:
    """Submit tasks as a whole, some after others."""
    shape = world.dice.choice(SHAPES)
    specs = [
        msgspec.structs.replace(
            spec_of(world.dice, None),
            ref=ref,
            depends_on=[Dependency(one, world.dice.choice(CONDITIONS)) for one in upstreams],
        )
        for ref, upstreams in zip("abcd", shape, strict=False)
    ]
    graph, batch = await server.submitter.submit_graph(CLIENT, None, specs)
    world.is_stirred = True
    world.graphs.append(graph)
    by_ref = {spec.ref: task for spec, task in zip(specs, batch.ids, strict=True)}
    for spec, task in zip(specs, batch.ids, strict=True):
        world.told.submits.append((None, _with_ids(spec, by_ref), task, True))


def _with_ids(spec: TaskSpec, ids: dict[str | None, int]) -> TaskSpec:
    named = [Dependency(str(ids[one.task]), one.on) for one in spec.depends_on]
    return msgspec.structs.replace(spec, depends_on=named)


async def wish(world: World, server: Server, graph: int, kind: OperationKind) -> None:
    """Ask for something of a graph, and wait until all of it is done."""
    made = await server.graph_operations.request(CLIENT, graph, kind)
    world.is_stirred = True
    done: OperationProgress | None = None
    while done is None or not done.is_over:
        done = await server.graph_operations.run_batch(made)
    if done != NOTHING_LEFT:
        world.tell("wished", made.id)
