"""Runs real agents against a test's server."""

import asyncio
import shutil
from contextlib import asynccontextmanager

from duly.agent.agent import AgentOptions, run_agent
from duly.model.resources import Resources
from tests.agent.node import new_data


async def new_token(real):
    """Return a token with which one node may join."""
    return (await real.call("POST", "/v1/node-tokens", json={"expires_in": "1h"})).json()["token"]


def agent_options(real, data, token, **others):
    """Return what an agent is started with."""
    return AgentOptions(
        urls=[str(real.client.base_url)],
        data=data,
        name="node-a",
        capacity=Resources(cpu_milli=4000, memory_mb=4096, disk_mb=4096),
        join_token=token,
        **others,
    )


@asynccontextmanager
async def running_agent(real):
    """Run an agent in this process, as a node with everything that belongs to it."""
    data, stop = new_data(), asyncio.Event()
    options = agent_options(real, data, await new_token(real))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(run_agent(options, stop))
            yield data
            stop.set()
    finally:
        shutil.rmtree(data)
