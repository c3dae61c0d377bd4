"""Nodes that join, stop, are drained and are removed, as processes."""

import signal

import pytest

from tests.faults.lab import Lab, until
from tests.faults.proxy import Proxy
from tests.faults.test_kills import submit

pytestmark = pytest.mark.faults
UNTIL_TOLD = "while [ ! -e {} ]; do sleep 0.05; done"


def test_a_node_whose_first_join_was_never_answered_joins_all_the_same(lab: Lab) -> None:
    lab.start_server()
    proxy = Proxy(lab.port)
    proxy.lose("/v1/nodes")
    lab.start_agent(url=proxy.url)
    assert proxy.lost.is_set()
    assert lab.client().wait(submit(lab, "true"), timeout=30)["status"] == "done"
    assert len(lab.client().list_nodes()["items"]) == 1
    proxy.close()


def test_an_agent_that_stops_is_given_no_more_work(lab: Lab) -> None:
    lab.start_server(EXECUTION__GRACE="30s")
    agent = lab.start_agent()
    told = lab.folder / "told"
    task = submit(lab, f"trap '' TERM; {UNTIL_TOLD.format(told)}")
    until(lambda: lab.ledger.starts(task), "the task to start")
    agent.send(signal.SIGTERM)
    until(lambda: lab.node("node-a") == "draining", "the agent to say that it stops")
    other = submit(lab, "true")
    told.touch()
    assert agent.process.wait(30) == 0
    assert lab.client().get_task(other)["attempt"] == 0
    lab.start_agent("node-b")
    assert lab.client().wait(other, timeout=30)["attempt"] == 1


def test_draining_waits_for_what_runs(lab: Lab) -> None:
    lab.start_server()
    lab.start_agent()
    told = lab.folder / "told"
    task = submit(lab, UNTIL_TOLD.format(told))
    until(lambda: lab.ledger.starts(task), "the task to start")
    drain = lab.run("node drain node-a --wait --output json")
    until(lambda: lab.node("node-a") == "draining", "the node to drain")
    assert drain.is_running()
    told.touch()
    assert drain.process.wait(30) == 0
    assert drain.said('"drained"')
    assert lab.client().get_task(task)["status"] == "done"


def test_a_node_that_is_removed_gives_its_tasks_up_and_does_not_come_back(lab: Lab) -> None:
    lab.start_server()
    agent = lab.start_agent()
    told = lab.folder / "told"
    task = submit(lab, UNTIL_TOLD.format(told))
    until(lambda: lab.ledger.starts(task), "the task to start")
    lab.start_agent("node-b")
    assert lab.run("node remove node-a --yes").process.wait(30) == 0
    until(lambda: len(lab.ledger.starts(task)) == 2, "the task to start elsewhere")
    until(lambda: not agent.is_running(), "the agent to give up")
    assert agent.said("If the node was removed")
    told.touch()
    ended = lab.client().wait(task, timeout=30)
    assert (ended["status"], ended["node"], ended["losses"]) == ("done", "node-b", 1)
