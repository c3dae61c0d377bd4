"""A rolling upgrade from the previous version to the next one under load."""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.conftest import allow_reading_uptime, drop_database, with_database
from tests.faults import previous_version
from tests.faults.lab import Lab, Program, until
from tests.faults.test_servers import SubmittingClient, url_of

pytestmark = pytest.mark.faults
NODES = ("node-a", "node-b")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the code of the previous version."""
    return previous_version.unpack(tmp_path_factory.mktemp("previous") / "duly")


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the code of this version and one more migration."""
    return previous_version.next_version(tmp_path_factory.mktemp("next") / "duly")


@pytest.fixture
def lab(folder: Path, postgres: str, old: Path) -> Iterator[Lab]:
    """A lab on a database that the previous version has initialised."""
    asyncio.run(_execute(postgres, "create database versions"))
    dsn = with_database(postgres, "versions")
    asyncio.run(allow_reading_uptime(dsn))
    lab = Lab(folder, dsn, previous_version.prepare(old, folder, dsn), servers=3)
    yield lab
    lab.close()
    asyncio.run(drop_database(postgres, "versions"))


async def _execute(dsn: str, statement: str) -> None:
    conn = await asyncpg.connect(dsn)
    await conn.execute(statement)
    await conn.close()


class Upgrade:
    """A cluster of the previous version, which is upgraded process by process."""

    def __init__(self, lab: Lab, old: Path, new: Path) -> None:
        self.lab = lab
        self._new = new
        self.servers = [lab.start_server(index, old) for index in range(3)]
        self.agents = {name: lab.start_agent(name, lab.urls, old) for name in NODES}
        self.clients = [SubmittingClient(lab, number) for number in range(3)]
        self._submitted: list[str] = []

    def await_progress(self) -> None:
        """Wait until every client has made progress, and every node has run a task."""
        until(
            lambda: all(client.makes_progress() for client in self.clients),
            "every client to progress",
        )
        client = self.lab.client(self.lab.urls)
        for name in NODES:
            task = client.submit(source=self.lab.ledger.script("true"), requires={"name": name})
            self._submitted.append(task["id"])
            assert client.wait(task["id"], timeout=30)["status"] == "done"

    def migrate(self) -> None:
        migration = self.lab.run(f"db migrate --database-file {self.lab.folder}/dsn", self._new)
        assert migration.process.wait(60) == 0, migration.log.read_text()
        self.await_progress()

    def replace_server(self, index: int, source: Path | None = None) -> None:
        self.stop(self.servers[index])
        self.await_progress()
        self.start_server(index, source)

    def start_server(self, index: int, source: Path | None = None) -> None:
        self.servers[index] = self.lab.start_server(index, source or self._new)
        self.await_progress()

    def replace_agent(self, name: str, index: int | None, source: Path | None = None) -> None:
        """Drain a node and restart its agent, with the URL of one server or of all."""
        client = self.lab.client(self.lab.urls)
        client.drain_node(name)
        until(lambda: self.lab.node(name) == "drained", f"{name} to be drained")
        self.stop(self.agents[name])
        client.undrain_node(name)
        url = self.lab.urls if index is None else url_of(self.lab, index)
        self.agents[name] = self.lab.start_agent(name, url, source or self._new)
        self.await_progress()

    def stop(self, program: Program) -> None:
        assert program.stop() == 0, program.log.read_text()

    def finish(self) -> list[str]:
        """Stop the clients, and return all acknowledged tasks."""
        return [*self._submitted, *(task for client in self.clients for task in client.finish())]


@pytest.mark.timeout(300)
def test_servers_and_agents_are_replaced_one_by_one_under_load(
    lab: Lab, old: Path, new: Path
) -> None:
    cluster = Upgrade(lab, old, new)
    cluster.await_progress()
    cluster.migrate()
    # The migration supports the previous version: its servers can even be restarted.
    cluster.replace_server(1, source=old)

    # A new server with an old leader, and a new agent with an old server.
    cluster.replace_server(2)
    assert lab.leader() == ("server-0", 1)
    cluster.replace_agent("node-a", 0)
    # An old agent that knows only the new server.
    cluster.replace_agent("node-b", 2, source=old)

    # A new leader with an old server, which has an agent, too.
    cluster.replace_agent("node-a", 2)
    cluster.servers[1].send(signal.SIGSTOP)
    cluster.stop(cluster.servers[0])
    until(lambda: lab.leader(url_of(lab, 2)) == ("server-2", 2), "the new server to lead")
    cluster.servers[1].send(signal.SIGCONT)
    cluster.replace_agent("node-a", 1)

    cluster.start_server(0)
    cluster.replace_agent("node-a", None)
    cluster.replace_server(1)
    cluster.replace_agent("node-b", None)
    check(cluster)


def check(cluster: Upgrade) -> None:
    """Check that every task is done at its first attempt, and ran once."""
    lab, acknowledged = cluster.lab, cluster.finish()
    for ended in lab.await_ended(acknowledged).values():
        assert (ended["status"], ended["attempt"]) == ("done", 1), ended
    ends = Counter(entry.task for entry in lab.ledger.entries() if entry.what == "end")
    assert ends == Counter(int(task) for task in acknowledged)
    assert sorted(task["id"] for task in lab.client(lab.urls).iter_tasks()) == sorted(acknowledged)
    assert lab.violations(acknowledged) == []
