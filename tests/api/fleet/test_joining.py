"""Real agents that join with a token that was used before."""

import asyncio
import shutil

import pytest

from duly.agent import identity
from duly.agent.agent import run_agent
from duly.errors import ConfigError
from tests.agent.node import new_data
from tests.api.agents import agent_options, new_token


@pytest.fixture
def data():
    folder = new_data()
    yield folder
    shutil.rmtree(folder)


async def join_as(real, token, name, key):
    body = {"name": name, "capacity": {}, "key": key}
    answer = await real.with_key(token).call("POST", "/v1/nodes", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["node"]


async def test_an_agent_whose_join_was_not_answered_joins_again(real, data):
    token = await new_token(real)
    node = await join_as(real, token, "node-a", identity.ensure(data).key)
    assert identity.load(data).node is None
    stop = asyncio.Event()
    async with asyncio.timeout(30):
        assert await run_agent(agent_options(real, data, token, on_joined=stop.set), stop) == 0
    assert identity.load(data).node == node


async def test_an_agent_whose_token_another_has_used_says_what_to_do(real, data):
    token = await new_token(real)
    await join_as(real, token, "node-b", identity.ensure(new := new_data()).key)
    shutil.rmtree(new)
    with pytest.raises(ExceptionGroup) as raised:
        await run_agent(agent_options(real, data, token), asyncio.Event())
    (error,) = raised.value.exceptions
    assert isinstance(error, ConfigError)
    assert "The join token has been used" in error.message and "--uses N" in error.message
