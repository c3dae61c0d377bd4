"""A cluster of real processes, each on its own virtual host, into which faults can be injected.

Servers and nodes are identified by the names of their hosts. The lease times are the defaults,
because the promises are about those.
"""

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Self

import asyncpg

from duly.client.retry import Patience
from duly.client.sync import Client
from duly.store import migrate
from duly.store.accounts.tenants import create_admin_key, digest, generate_key
from duly.store.database import Database
from duly.store.fleet import nodes
from tests import stale_cgroups
from tests.torture.clocks import NO_OFFSET, Clock
from tests.torture.disks import fill, free
from tests.torture.network import Host, Network
from tests.torture.postgres import PostgresPair
from tests.torture.processes import Program, until

DULY = [str(Path(sys.executable).with_name("duly"))]
PORT = 8470
NODE_DISK_MB = 256
"""The size of a node's disk in megabytes."""


async def create_secrets(dsn: str) -> tuple[str, str]:
    """Create an administrator's key, and a join token for any number of nodes."""
    async with await Database.connect(dsn) as database, database.connection() as conn:
        token = generate_key("dulyjoin")
        await nodes.add_token(conn, digest(token), lasts=timedelta(hours=2), uses=None)
        return await create_admin_key(conn), token


async def _migrate(dsn: str) -> None:
    conn = await asyncpg.connect(dsn)
    await migrate.migrate(conn)
    await conn.close()


@dataclass
class Member:
    """A server or an agent: its host, its command, and its running program."""

    host: Host
    args: list[str]
    clock: Clock
    program: Program | None = None
    is_stopped: bool = False

    def is_running(self) -> bool:
        return self.program is not None and self.program.is_running()


class Cluster:
    """Servers and nodes on one pair of PostgreSQL servers."""

    def __init__(
        self,
        network: Network,
        postgres: PostgresPair,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        servers: int = 2,
        nodes: Sequence[str] = ("node-a", "node-b"),
        cpu: int = 4,
    ) -> None:
        self.network = network
        self.postgres = postgres
        self.folder = folder
        self.server_names = [f"server-{number}" for number in range(servers)]
        self.node_names = list(nodes)
        self.key = ""
        self._cpu = cpu
        self._settings = dict(settings or {})
        self._members: dict[str, Member] = {}
        self._hosts_by_number: dict[int, str] = {}
        self._lock = threading.RLock()
        self.client_host = network.host("client")

    def __enter__(self) -> Self:
        asyncio.run(_migrate(self.postgres.local_dsn))
        self.key, token = asyncio.run(create_secrets(self.postgres.local_dsn))
        self._write_private("dsn", self.postgres.dsn)
        self._write_private("token", token)
        for name in self.server_names:
            self._members[name] = self._server(name)
        for name in self.node_names:
            self.network.disk(name, self.folder / name, NODE_DISK_MB)
            self._members[name] = self._node(name)
        try:
            for name in self.names:
                self.start(name)
            for name in self.node_names:
                self.await_node(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill all processes, and remove their cgroups."""
        for name in self._members:
            self.thaw_node(name)
            self._host(name).kill_all()
        stale_cgroups.remove(self.folder / name / "data" for name in self.node_names)

    @property
    def names(self) -> list[str]:
        return list(self._members)

    @property
    def urls(self) -> str:
        return ",".join(self.url(name) for name in self.server_names)

    def url(self, name: str) -> str:
        return f"http://{self._host(name).address}:{PORT}"

    def client(self, *names: str, seconds: float = 60) -> Client:
        """Return a client of all servers, or of the named ones.

        It may be used in this thread only inside `client_host.entered()`.
        """
        urls = ",".join(self.url(name) for name in names) or self.urls
        return Client(urls, self.key, patience=Patience(total=timedelta(seconds=seconds)))

    def start(self, name: str) -> None:
        """Start a server or an agent, unless it runs."""
        member = self._members[name]
        with self._lock:
            if member.is_running():
                return
            log = self.folder / f"{name}-{time.monotonic_ns()}.log"
            env = {**self._settings, "HOME": str(self.folder / "home")}
            args = member.clock.wrap([*DULY, *member.args])
            member.program = member.host.spawn(args, log=log, env=env)
            member.is_stopped = False
            self._hosts_by_number.clear()  # numbers may be reassigned

    def await_server(self, name: str, seconds: float = 30) -> None:
        """Wait until a server has logged that it is ready."""
        program = self.program(name)
        until(
            lambda: program.has_logged("ready:") or self._ended(program),
            f"{name} to serve",
            seconds,
        )

    def await_node(self, name: str, seconds: float = 60) -> None:
        """Wait until a node holds a lease."""
        until(lambda: self.holds_lease(name), f"{name} to join", seconds)

    def program(self, name: str) -> Program:
        program = self._members[name].program
        assert program is not None, f"{name} was never started"
        return program

    def kill(self, name: str) -> None:
        """Kill a server or an agent, but not its children."""
        self.program(name).kill()

    def stop(self, name: str) -> None:
        self._members[name].is_stopped = True
        self.program(name).send(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._members[name].is_stopped = False
        self.program(name).send(signal.SIGCONT)

    def restart(self, name: str, seconds: float = 60) -> None:
        """Stop a server or an agent gracefully, and start it again."""
        code = self.program(name).stop(seconds)
        assert code == 0, f"{name} ended with {code}: {self.program(name).log}"
        self.start(name)

    def kill_node(self, name: str) -> None:
        """Simulate a power failure: kill every process of a node, and take its link down."""
        self.network.unplug(name)
        self._host(name).kill_all()

    def revive_node(self, name: str) -> None:
        """Start a node after `kill_node`."""
        self.network.plug_in(name)
        self.start(name)

    def freeze_node(self, name: str) -> None:
        self._host(name).freeze()

    def thaw_node(self, name: str) -> None:
        self._host(name).thaw()

    def faketime(self, name: str, offset: str) -> None:
        """Set the clock offset of a server or an agent, such as `+1h` or `+0`."""
        self._members[name].clock.set(offset)

    def fill_disk(self, name: str) -> None:
        fill(self.folder / name)

    def free_disk(self, name: str) -> None:
        free(self.folder / name)

    def is_up(self, name: str) -> bool:
        """Return True if a server or an agent runs, and is not stopped by SIGSTOP."""
        member = self._members[name]
        return member.is_running() and not member.is_stopped

    def is_responding(self, name: str) -> bool:
        """Return True if a server responds, which includes its database."""
        try:
            return bool(self._get(name, "/v1/status").get("server"))
        except (OSError, HTTPException, ValueError):
            return False

    def sleep(self, seconds: float) -> None:
        """Sleep while a fault lasts."""
        time.sleep(seconds)

    @property
    def database_names(self) -> list[str]:
        return sorted((self.postgres.primary.name, self.postgres.standby.name))

    def leader(self) -> str | None:
        """Return the name of the server that leads, by the database."""
        rows = self._query("select server from duly.terms where expires_at > duly.now()")
        if not rows:
            return None
        number = rows[0]["server"]
        if number not in self._hosts_by_number:
            self._read_server_numbers()
        return self._hosts_by_number.get(number)

    def term(self) -> int:
        """Return the number of the current or latest term."""
        rows = self._query("select term from duly.terms order by term desc")
        return int(rows[0]["term"]) if rows else 0

    def leases_since(self, term: int) -> int:
        """Return the number of running tasks that were leased in a term after `term`."""
        rows = self._query("select 1 from duly.live where status = 'running' and term > $1", term)
        return len(rows)

    def holds_lease(self, name: str) -> bool:
        rows = self._query(
            "select 1 from duly.nodes n join duly.incarnations i on i.node_id = n.id"
            " where n.name = $1 and i.ended_at is null and i.expires_at > duly.now()",
            name,
        )
        return bool(rows)

    def running_on(self, name: str) -> list[int]:
        """Return the tasks that are leased to a node, by the database."""
        rows = self._query(
            "select l.id from duly.live l join duly.nodes n on n.id = l.node_id"
            " where n.name = $1 and l.status = 'running'",
            name,
        )
        return [row["id"] for row in rows]

    def heal(self) -> None:
        """Heal all faults of hosts, processes, clocks and disks; start what has ended."""
        self.network.heal()
        for name, member in self._members.items():
            self.thaw_node(name)
            member.clock.set(NO_OFFSET)
            if name in self.node_names:
                self.free_disk(name)
            if member.is_stopped:
                self.resume(name)
            self.start(name)

    def _query(self, statement: str, *args: object) -> list[asyncpg.Record]:
        """Query the primary; return nothing while it does not respond."""
        try:
            return self.postgres.primary.query(statement, *args, seconds=5)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            return []

    def _read_server_numbers(self) -> None:
        """Read the number of each server that responds."""
        for name in self.server_names:
            with suppress(OSError, HTTPException, ValueError, KeyError):
                status = self._get(name, "/v1/status")
                self._hosts_by_number[int(status["server"].removeprefix("server-"))] = name

    def _get(self, name: str, path: str) -> dict[str, str]:
        with self.client_host.entered():
            conn = HTTPConnection(self._host(name).address, PORT, timeout=2)
            try:
                conn.request("GET", path, headers={"Authorization": f"Bearer {self.key}"})
                body: dict[str, str] = json.loads(conn.getresponse().read())
                return body
            finally:
                conn.close()

    def _server(self, name: str) -> Member:
        host = self.network.host(name)
        command = f"serve --database-file {self.folder}/dsn --host {host.address} --port {PORT}"
        args = [*command.split(), "--store", f"{self.folder}/store", "--verbose"]
        return Member(host, args, Clock(self.folder / f"{name}.clock"))

    def _node(self, name: str) -> Member:
        command = (
            f"agent --url {self.urls} --join-token-file {self.folder}/token"
            f" --data {self.folder}/{name}/data --name {name} --isolation process"
            f" --cpu {self._cpu} --memory 16GiB --disk 40GiB --verbose"
        )
        clock = Clock(self.folder / f"{name}.clock")
        return Member(self.network.host(name), command.split(), clock)

    def _host(self, name: str) -> Host:
        return self._members[name].host

    def _write_private(self, name: str, text: str) -> None:
        file = self.folder / name
        file.touch(mode=0o600)
        file.write_text(text)

    @staticmethod
    def _ended(program: Program) -> bool:
        if not program.is_running():
            raise AssertionError(f"the program ended:\n{program.log.read_text()[-3000:]}")
        return False
