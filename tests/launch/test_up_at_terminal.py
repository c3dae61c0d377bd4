"""Ctrl-C at `duly up`: once to stop, again to be told what is left, and a third time to hurry."""

import re
import time
from contextlib import contextmanager

import pytest

from duly.client.sync import Client
from tests.conftest import copy_data
from tests.launch.running_up import DULY, until
from tests.launch.test_up import _second_attempt_runs, new_machine
from tests.terminal import CTRL_C, Terminal

pytestmark = pytest.mark.faults
DEAF = "trap 'echo no' TERM; echo deaf; while :; do sleep 0.1; done"


@pytest.fixture
def machine(data_template):
    with new_machine() as machine:
        copy_data(data_template, machine.data)
        yield machine


@contextmanager
def up_at_terminal(machine, **env):
    """Run `duly up` at a terminal; yield it once it is ready."""
    command = [DULY, "up", "--data", str(machine.data), "--port", "0", "--no-dashboard"]
    terminal = Terminal(command, {**machine.env, **env})
    try:
        url = terminal.wait_for(r"(?m)^ready: (http://\S+)$")[1]
        terminal.wait_for("run -- echo")
        with Client(url, machine.key) as client:
            yield terminal, client
    finally:
        terminal.close()


def run_deaf(client):
    """Return a task that ignores SIGTERM by now."""
    task = client.submit(command=["sh", "-c", DEAF], max_attempts=1)["id"]
    until(lambda: client.read_logs(task) == b"deaf\n", "the task to ignore SIGTERM")
    return task


def test_the_second_ctrl_c_says_what_is_waited_for_and_the_third_stops_at_once(machine):
    with up_at_terminal(machine, DULY_EXECUTION__GRACE="90s") as (terminal, client):
        tasks = [run_deaf(client), run_deaf(client)]
        later = client.submit(command=["true"], run_at="2030-01-01T00:00:00Z")["id"]
        terminal.press(CTRL_C)
        terminal.wait_for(
            r"Stopping: running tasks have 90 s to end, and return to their queue\. "
            r"Press Ctrl-C again to see what is left\.\n"
        )
        for task in tasks:
            until(lambda task=task: b"no\n" in client.read_logs(task), "the task to get SIGTERM")
        terminal.press(CTRL_C)
        left = terminal.wait_for(
            r"Still stopping: 2 tasks have up to (\d+) s to end\. "
            r"Press Ctrl-C again to stop at once\.\n"
        )
        assert 60 < int(left[1]) <= 90
        began_at = time.monotonic()
        terminal.press(CTRL_C)
        terminal.wait_for(r"Stopping at once: running tasks are killed, and run again after the ")
        terminal.wait_for(r"waiting for the agent, the server, PostgreSQL\.\n")
        code, shown = terminal.end()
    assert code == 130
    assert time.monotonic() - began_at < 20
    assert "Traceback" not in shown
    assert machine.processes() == []

    again = machine.up("--no-dashboard").ready()
    for task in tasks:
        until(lambda task=task: _second_attempt_runs(again, task), "the task to run again")
    with again.client() as client:
        assert client.get_task(later)["status"] == "scheduled"
    assert again.stop() == 0


def test_one_ctrl_c_returns_tasks_to_their_queue_and_exits_with_130(machine):
    with up_at_terminal(machine) as (terminal, client):
        script = "echo begun; exec sleep 600"
        nap = client.submit(command=["sh", "-c", script], max_attempts=1)["id"]
        until(lambda: client.read_logs(nap) == b"begun\n", "the task to begin")
        terminal.press(CTRL_C)
        code, shown = terminal.end()
    assert code == 130
    assert re.search(r"Stopping: running tasks have 2 s to end", shown)
    assert "Still" not in shown and "Traceback" not in shown
    assert machine.processes() == []

    again = machine.up("--no-dashboard").ready()
    until(lambda: _second_attempt_runs(again, nap), "the task to run again")
    with again.client() as client:
        assert client.get_task(nap)["losses"] == 0
    assert again.stop() == 0
