"""Several servers on one database: any of them may die, be stopped, or be replaced."""

import signal
import threading

import pytest

from duly.client.sync import Client
from duly.clock import monotonic
from tests.faults.lab import Lab, Program, until
from tests.faults.test_kills import submit
from tests.torture import database_dump

pytestmark = pytest.mark.faults
HAND_OVER = 5.0


@pytest.fixture
def servers(lab: Lab) -> list[Program]:
    """Two servers, of which the first leads, and a node that knows both."""
    started = [lab.start_server(0), lab.start_server(1)]
    assert lab.leader() == ("server-0", 1)
    lab.start_agent(url=lab.urls)
    return started


def url_of(lab: Lab, which: int) -> str:
    return lab.urls.split(",")[which]


def test_both_servers_are_listed_and_either_takes_tasks(lab: Lab, servers: list[Program]) -> None:
    listed = lab.client(url_of(lab, 1)).list_servers()["items"]
    assert [(one["name"], one["status"], one["duties"]) for one in listed] == [
        ("server-0", "ready", [{"name": "scheduling", "term": 1}]),
        ("server-1", "ready", []),
    ]
    for which in (0, 1):
        client = lab.client(url_of(lab, which))
        task = client.submit(source=lab.ledger.script("true"))["id"]
        ended = client.wait(task, timeout=30)
        assert (ended["status"], ended["admitted_by"]) == ("done", f"server-{which}")
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
    assert started.at - killed_at <= HAND_OVER
    assert lab.leader(url_of(lab, 1)) == ("server-1", 2)
    for task in (before, after):
        ended = client.wait(task, timeout=30)
        assert (ended["status"], ended["attempt"], ended["losses"]) == ("done", 1, 0)
    assert lab.violations([before, after]) == []


def test_a_leader_that_was_stopped_and_wakes_up_leads_no_more(
    lab: Lab, servers: list[Program]
) -> None:
    other = lab.client(url_of(lab, 1))
    told = [submit(lab, "sleep 0.1") for _ in range(3)]
    for task in told:
        assert other.wait(task, timeout=30)["status"] == "done"

    servers[0].send(signal.SIGSTOP)
    told += [other.submit(source=lab.ledger.script("sleep 0.1"))["id"] for _ in range(20)]
    until(lambda: lab.leader(url_of(lab, 1)) == ("server-1", 2), "another leader", HAND_OVER)
    servers[0].send(signal.SIGCONT)
    told += [submit(lab, "sleep 0.1") for _ in range(20)]
    for task in told:
        assert other.wait(task, timeout=60)["status"] == "done"

    assert lab.leader() == ("server-1", 2)
    steps = database_dump.read(lab.dsn).journal
    assert {step.term for step in steps if step.token is not None and step.term} == {1, 2}
    assert lab.violations(told) == []


def test_both_servers_are_replaced_while_clients_submit_and_none_is_refused(
    lab: Lab, servers: list[Program]
) -> None:
    crowd = [Crowd(lab, number) for number in range(3)]
    for which in (0, 1, 0, 1):
        until(lambda: all(one.makes_progress() for one in crowd), "every client to go on")
        assert servers[which].stop() == 0
        until(lambda: all(one.makes_progress() for one in crowd), "every client to go on")
        servers[which] = lab.start_server(which)
    told = [task for one in crowd for task in one.finish()]

    assert {one["status"] for one in lab.ended(told).values()} == {"done"}
    assert len(set(told)) == len(told)
    stored = [task["id"] for task in lab.client(lab.urls).iter_tasks()]
    assert sorted(stored) == sorted(told)
    assert lab.violations(told) == []


class Crowd:
    """A client that submits all the time, each task under a key of its own."""

    def __init__(self, lab: Lab, number: int) -> None:
        self._client = Client(lab.urls, lab.key)
        self._script = lab.ledger.script("true")
        self._number = number
        self._ids: list[str] = []
        self._seen = 0
        self._error: BaseException | None = None
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._submit)
        self._thread.start()

    def makes_progress(self) -> bool:
        """Say whether five more were acknowledged since this was last true."""
        if self._error is not None:
            raise self._error
        more = len(self._ids) >= self._seen + 5
        if more:
            self._seen = len(self._ids)
        return more

    def finish(self) -> list[str]:
        """Stop, and return the ids that were acknowledged."""
        self._enough.set()
        self._thread.join(60)
        self._client.close()
        if self._error is not None:
            raise self._error
        return self._ids

    def _submit(self) -> None:
        try:
            # Three of them keep a core half busy; more would only make a backlog of tasks.
            while not self._enough.wait(0.15):
                key = f"{self._number}-{len(self._ids)}"
                task = self._client.submit(source=self._script, idempotency_key=key)
                self._ids.append(task["id"])
        except BaseException as error:
            self._error = error
