"""Gives others on this server their turn between the steps of something long."""

import asyncio
from typing import TypeVar

from duly.model.steps import Steps

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
