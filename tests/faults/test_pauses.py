"""Stopped agents and lost responses: stale agents and reports change nothing."""

import signal

import pytest

from tests.faults.lab import Lab, until
from tests.faults.proxy import Proxy
from tests.faults.test_kills import submit
from tests.faults.test_nodes import WAIT_FOR_FILE

pytestmark = pytest.mark.faults
LONG_FIRST_ATTEMPT = 'sleep "$(if [ $DULY_ATTEMPT = 1 ]; then echo 60; else echo 0.1; fi)"'


def test_a_stopped_agent_is_replaced_and_attempts_do_not_overlap(lab: Lab) -> None:
    lab.start_server()
    first = lab.start_agent("node-a")
    task = submit(lab, "beats 40")
    until(lambda: lab.ledger.starts(task), "the first attempt to start")

    first.send(signal.SIGSTOP)
    lab.start_agent("node-b")
    until(
        lambda: any(entry.attempt == 2 for entry in lab.ledger.starts(task)), "the second attempt"
    )
    first.send(signal.SIGCONT)

    ended = lab.client().wait(task, timeout=40)
    assert (ended["status"], ended["attempt"], ended["losses"]) == ("done", 2, 1)
    until(lambda: lab.node("node-a") == "ready", "the first node to join again")
    assert lab.violations([task]) == []


def test_a_lost_poll_response_loses_no_task(lab: Lab) -> None:
    lab.start_server()
    proxy = Proxy(lab.port)
    lab.start_agent(url=proxy.url)
    proxy.drop_response("/v1/gateway/poll")
    task = submit(lab, "true")
    ended = lab.client().wait(task, timeout=30)
    assert proxy.response_dropped.is_set()
    assert (ended["status"], ended["attempt"]) == ("done", 1)
    assert len(lab.ledger.starts(task)) == 1
    proxy.close()


def test_a_report_whose_response_is_lost_counts_once(lab: Lab) -> None:
    lab.start_server()
    proxy = Proxy(lab.port)
    lab.start_agent(url=proxy.url)
    proxy.drop_response("/v1/gateway/report")
    task = submit(lab, "true")
    assert lab.client().wait(task, timeout=30)["attempt"] == 1
    until(proxy.response_dropped.is_set, "the response to be lost")
    after = submit(lab, "true")
    assert lab.client().wait(after, timeout=30)["status"] == "done"
    assert lab.violations([task, after]) == []
    proxy.close()


def test_a_report_after_the_attempt_was_lost_changes_nothing(lab: Lab) -> None:
    lab.start_server()
    proxy = Proxy(lab.port)
    lab.start_agent("node-a", url=proxy.url)
    go_file = lab.folder / "go"
    task = submit(lab, f"{WAIT_FOR_FILE.format(go_file)}; [ $DULY_ATTEMPT = 2 ] || exit 1")
    until(lambda: lab.ledger.starts(task), "the first attempt to start")

    proxy.partition()
    go_file.touch()
    lab.start_agent("node-b")
    ended = lab.client().wait(task, timeout=30)
    assert (ended["status"], ended["attempt"], ended["failures"], ended["losses"]) == (
        "done",
        2,
        0,
        1,
    )
    proxy.heal()
    until(lambda: lab.node("node-a") == "ready", "the first node to join again")
    assert lab.client().get_task(task) == ended
    assert [attempt["outcome"] for attempt in lab.client().list_attempts(task)] == [
        "lost",
        "succeeded",
    ]
    assert lab.violations([task]) == []
    proxy.close()


def test_a_stopping_agent_returns_its_task_without_a_failure_or_loss(lab: Lab) -> None:
    lab.start_server()
    agent = lab.start_agent()
    task = submit(lab, LONG_FIRST_ATTEMPT)
    until(lambda: lab.ledger.starts(task), "the first attempt to start")
    assert agent.stop() == 0
    waiting = lab.client().get_task(task)
    assert (waiting["status"], waiting["failures"], waiting["losses"]) == ("waiting", 0, 0)
    assert lab.processes_of(task) == []
    lab.start_agent()
    ended = lab.client().wait(task, timeout=30)
    assert (ended["status"], ended["attempt"]) == ("done", 2)
    assert lab.violations([task]) == []
