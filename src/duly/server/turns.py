"""Gives others on this server their turn between the steps of something long.

Whatever is done for each task of a large request takes tens of milliseconds for all of them,
if it is only to let them go again. Everybody else would wait for that long, again and again.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from duly.model.steps import Steps

AT_ONCE = 1000
"""How many tasks make a piece."""

T = TypeVar("T")


async def in_turns(steps: Steps[T]) -> T:
    """Do the steps, and let others go on after each of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        await asyncio.sleep(0)


async def pieces(items: Sequence[T], size: int = AT_ONCE) -> AsyncIterator[Sequence[T]]:
    """Yield `items` piece by piece, and let others go on between two of them."""
    if len(items) <= size:
        yield items
        return
    for first in range(0, len(items), size):
        if first:
            await asyncio.sleep(0)
        yield items[first : first + size]


async def give_back(*lists: list[Any]) -> None:
    """Empty lists that nobody needs any more, a piece at a time."""
    for one in lists:
        while one:
            del one[-AT_ONCE:]
            if one:
                await asyncio.sleep(0)
