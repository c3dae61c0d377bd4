"""Runs an agent or a worker until a signal: the first returns its tasks, the second kills them."""

import asyncio
from collections.abc import Awaitable, Callable

from duly.launch.event_loop import tune_garbage_collector
from duly.launch.signals import Signals

Node = Callable[[asyncio.Event], Awaitable[int]]
"""Runs until the event is set, and returns an exit code."""


async def run_node(node: Node) -> int:
    """Run `node` until a signal, and return its exit code."""
    tune_garbage_collector()
    signals, codes = Signals(), [0]
    stopped = await signals.run(_work(node, signals.hurry, codes))
    return codes[-1] or stopped


async def _work(node: Node, hurry: asyncio.Event, codes: list[int]) -> None:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(_run(node, stop))
        try:
            codes.append(await asyncio.shield(running))
        except asyncio.CancelledError:
            if running.done():
                raise  # It failed and the group cancels us; there was no signal.
            stop.set()
            hurry_wait = group.create_task(hurry.wait())
            await asyncio.wait([running, hurry_wait], return_when=asyncio.FIRST_COMPLETED)
            raise


async def _run(node: Node, stop: asyncio.Event) -> int:
    return await node(stop)
