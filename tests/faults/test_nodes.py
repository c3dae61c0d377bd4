"""Agents as processes: join, stop, drain and remove."""

import signal

import pytest

from tests.faults.lab import Lab, until
from tests.faults.proxy import Proxy
from tests.faults.test_kills import submit

pytestmark = pytest.mark.faults
WAIT_FOR_FILE = "while [ ! -e {} ]; do sleep 0.05; done"


def test_a_node_joins_although_the_response_to_its_first_join_was_lost(lab: Lab) -> None:
    lab.start_server()
    proxy = Proxy(lab.port)
    proxy.drop_response("/v1/nodes")
    lab.start_agent(url=proxy.url)
    assert proxy.response_dropped.is_set()
    assert lab.client().wait(submit(lab, "true"), timeout=30)["status"] == "done"
    assert len(lab.client().list_nodes()["items"]) == 1
    proxy.close()


def test_a_stopping_agent_gets_no_more_tasks(lab: Lab) -> None:
    lab.start_server(EXECUTION__GRACE="30s")
    agent = lab.start_agent()
    go_file = lab.folder / "go"
    task = submit(lab, f"trap '' TERM; {WAIT_FOR_FILE.format(go_file)}")
    until(lambda: lab.ledger.starts(task), "the task to start")
    agent.send(signal.SIGTERM)
    until(lambda: lab.node("node-a") == "draining", "the agent to report that it stops")
    other = submit(lab, "true")
    go_file.touch()
    assert agent.process.wait(30) == 0
    assert lab.client().get_task(other)["attempt"] == 0
    lab.start_agent("node-b")
    assert lab.client().wait(other, timeout=30)["attempt"] == 1


def test_draining_waits_for_running_tasks(lab: Lab) -> None:
    lab.start_server()
    lab.start_agent()
    go_file = lab.folder / "go"
    task = submit(lab, WAIT_FOR_FILE.format(go_file))
    until(lambda: lab.ledger.starts(task), "the task to start")
    drain = lab.run("node drain node-a --wait --output json")
    until(lambda: lab.node("node-a") == "draining", "the node to drain")
    assert drain.is_running()
    go_file.touch()
    assert drain.process.wait(30) == 0
    assert drain.has_logged('"drained"')
    assert lab.client().get_task(task)["status"] == "done"


def test_a_removed_node_loses_its_tasks_and_does_not_rejoin(lab: Lab) -> None:
    lab.start_server()
    agent = lab.start_agent()
    go_file = lab.folder / "go"
    task = submit(lab, WAIT_FOR_FILE.format(go_file))
    until(lambda: lab.ledger.starts(task), "the task to start")
    lab.start_agent("node-b")
    assert lab.run("node remove node-a --yes").process.wait(30) == 0
    until(lambda: len(lab.ledger.starts(task)) == 2, "the task to start elsewhere")
    until(lambda: not agent.is_running(), "the agent to exit")
    assert agent.has_logged("To let it join as a new node")
    go_file.touch()
    ended = lab.client().wait(task, timeout=30)
    assert (ended["status"], ended["node"], ended["losses"]) == ("done", "node-b", 1)
