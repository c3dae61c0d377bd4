"""The folders that a running agent keeps."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.api.agents import running_agent


@pytest.mark.skipif(os.geteuid() != 0, reason="only an agent that is root keeps folders")
async def test_a_folder_that_nobody_asks_for_is_gone_after_a_while(real, monkeypatch):
    monkeypatch.setattr("duly.agent.preparation.workspace_pool.MAX_IDLE_SECONDS", 0.0)
    async with running_agent(real):
        task = (await real.submit(command=["sh", "-c", "pwd"]))["id"]
        assert (await real.get(f"/v1/tasks/{task}?wait=20"))["status"] == "done"
        folder = Path((await real.call("GET", f"/v1/tasks/{task}/logs")).text.strip())
        async with asyncio.timeout(60):
            while folder.exists():
                await asyncio.sleep(0.02)
