"""Submits graphs, and cancels, pauses and resumes them as a whole."""

import msgspec

from duly.model.graph import Dependency
from duly.model.task import TaskSpec
from duly.server.lifecycle.graph_operations import NOTHING_LEFT, OperationProgress
from duly.store.tasks.graph_operations import OperationKind
from tests.interleavings.participants import Server
from tests.interleavings.world import CLIENT, CONDITIONS, World, spec_of

SHAPES = (((), ("a",), ("b",)), ((), ("a",), ("a",), ("b", "c")), ((), (), ("a", "b")))
"""The upstreams of each task, by ref."""
KINDS = (OperationKind.PAUSE, OperationKind.PAUSE, OperationKind.RESUME, OperationKind.CANCEL)


async def submit(world: World, server: Server) -> None:
    """Submit a graph."""
    shape = world.rng.choice(SHAPES)
    specs = [
        msgspec.structs.replace(
            spec_of(world.rng, None),
            ref=ref,
            depends_on=[
                Dependency(upstream, world.rng.choice(CONDITIONS)) for upstream in upstreams
            ],
        )
        for ref, upstreams in zip("abcd", shape, strict=False)
    ]
    graph, batch = await server.submitter.submit_graph(CLIENT, None, specs)
    world.has_changed = True
    world.graphs.append(graph)
    by_ref = {spec.ref: task for spec, task in zip(specs, batch.ids, strict=True)}
    for spec, task in zip(specs, batch.ids, strict=True):
        world.acknowledged.submits.append((None, _with_ids(spec, by_ref), task, True))


def _with_ids(spec: TaskSpec, ids: dict[str | None, int]) -> TaskSpec:
    by_id = [Dependency(str(ids[upstream.task]), upstream.on) for upstream in spec.depends_on]
    return msgspec.structs.replace(spec, depends_on=by_id)


async def operate(world: World, server: Server, graph: int, kind: OperationKind) -> None:
    """Request an operation on a graph, and apply it until it is complete."""
    operation = await server.graph_operations.request(CLIENT, graph, kind)
    world.has_changed = True
    progress: OperationProgress | None = None
    while progress is None or not progress.is_over:
        progress = await server.graph_operations.run_batch(operation)
    if progress != NOTHING_LEFT:
        world.record("graph operation", operation.id)
