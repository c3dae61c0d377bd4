"""How processes end: with 130 after Ctrl-C, with 0 after SIGTERM, and never with a traceback."""

import asyncio
import signal
import subprocess
from contextlib import contextmanager

import httpx
import pytest

from duly.client.sync import Client
from tests.launch.place import Place
from tests.launch.running_up import DULY, until
from tests.terminal import CTRL_C, Terminal

ENDS = [(signal.SIGINT, 130), (signal.SIGTERM, 0)]


@pytest.fixture
def place(open_folder, dsn):
    return Place(open_folder, dsn)


@contextmanager
def started(place, *arguments):
    """Start a command; yield it with its first line of output."""
    with place.start(*arguments, stderr=subprocess.PIPE) as process:
        yield process, process.stdout.readline().strip()


def serve(place):
    return started(
        place, "serve", "--port", "0", "--database-file", str(place.dsn_file),
        "--store", str(place.folder / "store"),
    )  # fmt: skip


def end(process, signum):
    """Send a signal; return the exit code and what was said on stderr."""
    process.send_signal(signum)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.parametrize(("signum", "code"), ENDS)
def test_a_server_stops_at_once_whoever_waits_for_it(place, signum, code):
    with serve(place) as (process, line):
        url = line.removeprefix("ready: ")
        with Client(url, place.key) as client:
            task = client.submit(command=["true"])["id"]
        status = asyncio.run(wait_while_it_stops(process, signum, url, place.key, task))
        assert (process.wait(60), process.stderr.read(), status) == (code, "", "waiting")


async def wait_while_it_stops(process, signum, url, key, task):
    """Wait for a task and follow its log; stop the server meanwhile, which takes no time."""
    headers = {"authorization": f"Bearer {key}"}
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client,
        asyncio.timeout(10),
        asyncio.TaskGroup() as group,
    ):
        waiting = group.create_task(client.get(f"/v1/tasks/{task}?wait=25"))
        async with client.stream("GET", f"/v1/tasks/{task}/logs?follow=true") as log:
            # Answered after the wait, which was sent before, has begun.
            assert (await client.get(f"/v1/tasks/{task}")).status_code == 200
            process.send_signal(signum)
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                await log.aread()
        return (await waiting).json()["status"]


@pytest.mark.parametrize(("signum", "code"), ENDS)
def test_an_agent_ends_with_its_server_gone_or_there(place, signum, code):
    with serve(place) as (server, line):
        with started(place, *place.agent(line.removeprefix("ready: "))) as (agent, joined):
            assert joined == "joined"
            assert end(agent, signum) == (code, "")
        with started(place, *place.agent(line.removeprefix("ready: "))) as (agent, joined):
            assert joined == "joined"
            assert end(server, signum) == (code, "")
            agent_code, errors = end(agent, signum)
            assert (agent_code, "Traceback" in errors) == (code, False)


@pytest.mark.parametrize(("signum", "code"), ENDS)
def test_a_dashboard_ends(place, signum, code):
    arguments = ["dashboard", "--url", "http://127.0.0.1:1", "--port", "0"]
    with started(place, *arguments) as (process, line):
        assert line.startswith("ready: ")
        assert end(process, signum) == (code, "")


def test_an_agent_at_a_terminal_says_what_it_waits_for(place):
    with serve(place) as (_, line):
        url = line.removeprefix("ready: ")
        terminal = Terminal([DULY, *place.agent(url)], place.env)
        try:
            terminal.wait_for("joined")
            with Client(url, place.key) as client:
                script = "trap 'echo no' TERM; echo deaf; while :; do sleep 0.1; done"
                task = client.submit(command=["sh", "-c", script])["id"]
                until(lambda: client.read_logs(task) == b"deaf\n", "the task to ignore SIGTERM")
            terminal.press(CTRL_C)
            terminal.wait_for(
                r"Stopping: 1 task has not ended yet\. Press Ctrl-C again to kill what is left\.\n"
            )
            terminal.press(CTRL_C)
            code, shown = terminal.end()
        finally:
            terminal.close()
    assert (code, "Traceback" in shown) == (130, False)
