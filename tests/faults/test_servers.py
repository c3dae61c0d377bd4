"""Several servers on one database, of which any may be killed, stopped or replaced."""

import signal
import threading

import pytest

from duly.client.sync import Client
from duly.clock import monotonic
from tests.faults.lab import Lab, Program, until
from tests.faults.test_kills import submit
from tests.torture import database_dump

pytestmark = pytest.mark.faults
FAILOVER_SECONDS = 5.0


@pytest.fixture
def servers(lab: Lab) -> list[Program]:
    """Two servers, of which the first leads, and a node with the URLs of both."""
    started = [lab.start_server(0), lab.start_server(1)]
    assert lab.leader() == ("server-0", 1)
    lab.start_agent(url=lab.urls)
    return started


def url_of(lab: Lab, index: int) -> str:
    return lab.urls.split(",")[index]


def test_both_servers_are_listed_and_accept_tasks(lab: Lab, servers: list[Program]) -> None:
    listed = lab.client(url_of(lab, 1)).list_servers()["items"]
    assert [(server["name"], server["status"], server["duties"]) for server in listed] == [
        ("server-0", "ready", [{"name": "scheduling", "term": 1}]),
        ("server-1", "ready", []),
    ]
    for index in (0, 1):
        client = lab.client(url_of(lab, index))
        task = client.submit(source=lab.ledger.script("true"))["id"]
        ended = client.wait(task, timeout=30)
        assert (ended["status"], ended["admitted_by"]) == ("done", f"server-{index}")
    for server in servers:
        assert server.stop() == 0
    lab.start_server(0)
    assert len(lab.client().list_servers()["items"]) == 1


def test_when_the_leader_is_killed_the_other_leads_and_dispatches_within_5_seconds(
    lab: Lab, servers: list[Program]
) -> None:
    client = lab.client(lab.urls)
    before = client.submit(source=lab.ledger.script("sleep 1"))["id"]
    until(lambda: lab.ledger.starts(before), "the first task to start")
    servers[0].kill()
    killed_at = monotonic()
    after = client.submit(source=lab.ledger.script("true"))["id"]
    started = until(lambda: lab.ledger.starts(after), "the second task to start")[0]
    assert started.at - killed_at <= FAILOVER_SECONDS
    assert lab.leader(url_of(lab, 1)) == ("server-1", 2)
    for task in (before, after):
        ended = client.wait(task, timeout=30)
        assert (ended["status"], ended["attempt"], ended["losses"]) == ("done", 1, 0)
    assert lab.violations([before, after]) == []


def test_a_stopped_leader_no_longer_leads_when_it_continues(
    lab: Lab, servers: list[Program]
) -> None:
    other = lab.client(url_of(lab, 1))
    acknowledged = [submit(lab, "sleep 0.1") for _ in range(3)]
    for task in acknowledged:
        assert other.wait(task, timeout=30)["status"] == "done"

    servers[0].send(signal.SIGSTOP)
    acknowledged += [other.submit(source=lab.ledger.script("sleep 0.1"))["id"] for _ in range(20)]
    until(lambda: lab.leader(url_of(lab, 1)) == ("server-1", 2), "another leader", FAILOVER_SECONDS)
    servers[0].send(signal.SIGCONT)
    acknowledged += [submit(lab, "sleep 0.1") for _ in range(20)]
    for task in acknowledged:
        assert other.wait(task, timeout=60)["status"] == "done"

    assert lab.leader() == ("server-1", 2)
    steps = database_dump.read(lab.dsn).journal
    assert {step.term for step in steps if step.token is not None and step.term} == {1, 2}
    assert lab.violations(acknowledged) == []


def test_both_servers_are_restarted_while_clients_submit_without_refusals(
    lab: Lab, servers: list[Program]
) -> None:
    clients = [SubmittingClient(lab, number) for number in range(3)]
    for index in (0, 1, 0, 1):
        until(
            lambda: all(client.makes_progress() for client in clients),
            "every client to make progress",
        )
        assert servers[index].stop() == 0
        until(
            lambda: all(client.makes_progress() for client in clients),
            "every client to make progress",
        )
        servers[index] = lab.start_server(index)
    acknowledged = [task for client in clients for task in client.finish()]

    assert {task["status"] for task in lab.await_ended(acknowledged).values()} == {"done"}
    assert len(set(acknowledged)) == len(acknowledged)
    stored = [task["id"] for task in lab.client(lab.urls).iter_tasks()]
    assert sorted(stored) == sorted(acknowledged)
    assert lab.violations(acknowledged) == []


class SubmittingClient:
    """A client that submits continuously, each task with its own idempotency key."""

    def __init__(self, lab: Lab, number: int) -> None:
        self._client = Client(lab.urls, lab.key)
        self._script = lab.ledger.script("true")
        self._number = number
        self._ids: list[str] = []
        self._reported = 0
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._submit)
        self._thread.start()

    def makes_progress(self) -> bool:
        """Return True if five more tasks were acknowledged since this was last True."""
        if self._error is not None:
            raise self._error
        more = len(self._ids) >= self._reported + 5
        if more:
            self._reported = len(self._ids)
        return more

    def finish(self) -> list[str]:
        """Stop, and return the ids of all acknowledged tasks."""
        self._stopped.set()
        self._thread.join(60)
        self._client.close()
        if self._error is not None:
            raise self._error
        return self._ids

    def _submit(self) -> None:
        try:
            # Three clients use half a core; more would only build up a backlog.
            while not self._stopped.wait(0.15):
                key = f"{self._number}-{len(self._ids)}"
                task = self._client.submit(source=self._script, idempotency_key=key)
                self._ids.append(task["id"])
        except BaseException as error:
            self._error = error
