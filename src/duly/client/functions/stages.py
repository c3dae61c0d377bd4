"""Stages: steps of a task whose results are kept across its attempts."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from duly.client.functions.arguments import decode_result, encode_result
from duly.client.functions.encoding.converter import Converter
from duly.client.functions.parameters import Parameters

if TYPE_CHECKING:
    from duly.client.functions.context import Context

R = TypeVar("R")


def run(context: "Context", name: str, function: Callable[[], R]) -> R:
    """Return the recorded result of a stage, or run and record it."""
    converter = result_converter(function)
    recorded = context.channel.stages().get(name)
    if recorded is None:
        recorded = context.channel.save_stage(name, encode_result(converter, function()))
    return cast(R, restore(converter, recorded))


async def run_async(context: "Context", name: str, function: Callable[[], Awaitable[R]]) -> R:
    """Do the same with a coroutine function; the event loop goes on while it is recorded."""
    converter = result_converter(function)
    recorded = (await asyncio.to_thread(context.channel.stages)).get(name)
    if recorded is None:
        result = encode_result(converter, await function())
        recorded = await asyncio.to_thread(context.channel.save_stage, name, result)
    return cast(R, restore(converter, recorded))


def restore(converter: Converter, recorded: bytes | str) -> Any:
    """Return a recorded result; what is returned is the same whether it was just made or not."""
    return decode_result(converter, json.loads(recorded))


def result_converter(function: Callable[[], Any]) -> Converter:
    """Return the converter of a function's result; without a type hint, for JSON as it is."""
    try:
        return Parameters(function).result
    except (TypeError, ValueError):  # a builtin without a signature
        from duly.client.functions.encoding.containers import UNTYPED

        return UNTYPED
