"""The version before this one beside the next one: a rolling upgrade, without a pause."""

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
from tests.faults.test_servers import Crowd, url_of

pytestmark = pytest.mark.faults
NODES = ("node-a", "node-b")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the code of the version before is."""
    return previous_version.unpack(tmp_path_factory.mktemp("previous") / "duly")


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the code of this version is, with a step of the schema that is still to come."""
    return previous_version.next_version(tmp_path_factory.mktemp("next") / "duly")


@pytest.fixture
def lab(folder: Path, postgres: str, old: Path) -> Iterator[Lab]:
    """A lab on a database that the version before has made."""
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
    """A cluster of the version before, which becomes one of the new version, part by part."""

    def __init__(self, lab: Lab, old: Path, new: Path) -> None:
        self.lab = lab
        self._new = new
        self.servers = [lab.start_server(which, old) for which in range(3)]
        self.agents = {name: lab.start_agent(name, lab.urls, old) for name in NODES}
        self.crowd = [Crowd(lab, number) for number in range(3)]
        self._tried: list[str] = []

    def goes_on(self) -> None:
        """Wait until every client was served, and every node has done something just now."""
        until(lambda: all(one.makes_progress() for one in self.crowd), "every client to go on")
        client = self.lab.client(self.lab.urls)
        for name in NODES:
            task = client.submit(source=self.lab.ledger.script("true"), requires={"name": name})
            self._tried.append(task["id"])
            assert client.wait(task["id"], timeout=30)["status"] == "done"

    def migrate(self) -> None:
        done = self.lab.run(f"db migrate --database-file {self.lab.folder}/dsn", self._new)
        assert done.process.wait(60) == 0, done.log.read_text()
        self.goes_on()

    def replace_server(self, which: int, source: Path | None = None) -> None:
        self.stop(self.servers[which])
        self.goes_on()
        self.start_server(which, source)

    def start_server(self, which: int, source: Path | None = None) -> None:
        self.servers[which] = self.lab.start_server(which, source or self._new)
        self.goes_on()

    def replace_agent(self, name: str, which: int | None, source: Path | None = None) -> None:
        """Drain a node and start its agent anew, for one server or for all of them."""
        client = self.lab.client(self.lab.urls)
        client.drain_node(name)
        until(lambda: self.lab.node(name) == "drained", f"{name} to be drained")
        self.stop(self.agents[name])
        client.undrain_node(name)
        url = self.lab.urls if which is None else url_of(self.lab, which)
        self.agents[name] = self.lab.start_agent(name, url, source or self._new)
        self.goes_on()

    def stop(self, program: Program) -> None:
        assert program.stop() == 0, program.log.read_text()

    def finish(self) -> list[str]:
        """Let the clients stop, and return every task that they were told of."""
        return [*self._tried, *(task for one in self.crowd for task in one.finish())]


@pytest.mark.timeout(300)
def test_servers_and_agents_are_replaced_one_by_one_under_load(
    lab: Lab, old: Path, new: Path
) -> None:
    cluster = Upgrade(lab, old, new)
    cluster.goes_on()
    cluster.migrate()
    # The later step serves the version before: its servers may even be started again.
    cluster.replace_server(1, source=old)

    # A new server under a leader of the version before; and a new agent of an old server.
    cluster.replace_server(2)
    assert lab.leader() == ("server-0", 1)
    cluster.replace_agent("node-a", 0)
    # An agent of the version before that knows only the new server.
    cluster.replace_agent("node-b", 2, source=old)

    # A leader of the new version above a server of the one before, which has an agent, too.
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
    """Every task is done, at the first attempt, and once."""
    lab, told = cluster.lab, cluster.finish()
    for ended in lab.ended(told).values():
        assert (ended["status"], ended["attempt"]) == ("done", 1), ended
    ends = Counter(one.task for one in lab.ledger.entries() if one.what == "end")
    assert ends == Counter(int(task) for task in told)
    assert sorted(task["id"] for task in lab.client(lab.urls).iter_tasks()) == sorted(told)
    assert lab.violations(told) == []
