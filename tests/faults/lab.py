"""Runs servers, agents and PostgreSQL as real processes that tests can kill and stop."""

import asyncio
import random
import signal
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from duly.client.retry import Patience
from duly.client.shapes.task_shapes import FINAL_STATUSES, Task
from duly.client.sync import Client
from tests import stale_cgroups
from tests.torture import database_dump, journal
from tests.torture.cluster import DULY, create_secrets
from tests.torture.evidence import Evidence, RunSettings, Violation
from tests.torture.history import Call
from tests.torture.invariants import judge
from tests.torture.ledger import Ledger
from tests.torture.processes import Program, until

CANDIDATE_PORTS = iter(random.sample(range(10_000, 20_000), 10_000))
"""Below the ephemeral range, and in a different order in every process."""
FAST_SETTINGS = {
    "DULY_LEASES__HEARTBEAT": "0.3s",
    "DULY_LEASES__TTL": "2s",
    "DULY_RETRIES__BASE_DELAY": "0.1s",
    "DULY_EXECUTION__GRACE": "1s",
}


def free_port() -> int:
    """Return a port that stays free while its server is down.

    A port of the ephemeral range may be taken by an outgoing connection, even by a client that
    connects to itself while the server is down.
    """
    while True:
        port = next(CANDIDATE_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _code_environment(source: Path | None) -> dict[str, str]:
    """Return the environment to run the code in `source`; by default our own code."""
    return {"PYTHONPATH": str(source)} if source else {}


class Lab:
    """Servers and nodes on one database; most tests start one of each."""

    def __init__(
        self,
        folder: Path,
        dsn: str,
        secrets: tuple[str, str] | None = None,
        servers: int = 2,
        program: Sequence[str] = DULY,
    ) -> None:
        folder.chmod(0o755)
        self._program = program
        self.folder = folder
        self.dsn = dsn
        self.key, self._token = secrets or asyncio.run(create_secrets(dsn))
        journal.begin(dsn)
        self.ledger = Ledger(folder)
        self.ports = [free_port() for _ in range(servers)]
        self.port = self.ports[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.urls = ",".join(f"http://127.0.0.1:{port}" for port in self.ports)
        self.programs: list[Program] = []
        self._clients: dict[tuple[str, float], Client] = {}
        self._dsn_file = folder / "dsn"
        self._dsn_file.write_text(dsn)
        self._dsn_file.chmod(0o600)
        self._env = {
            **FAST_SETTINGS,
            "HOME": str(folder / "home"),
            "DULY_URL": self.url,
            "DULY_KEY": self.key,
        }

    def client(self, url: str | None = None, seconds: float = 30) -> Client:
        cache_key = (url or self.url, seconds)
        if cache_key not in self._clients:
            patience = Patience(total=timedelta(seconds=seconds))
            self._clients[cache_key] = Client(cache_key[0], self.key, patience=patience)
        return self._clients[cache_key]

    def start_server(
        self,
        index: int = 0,
        source: Path | None = None,
        dsn: str | None = None,
        **settings: str,
    ) -> Program:
        """Start a server with `settings`, possibly with the code in `source` or a proxied `dsn`."""
        if dsn is not None:
            self._dsn_file.write_text(dsn)
        port = self.ports[index]
        server = self._start(
            f"server-at-{port}",
            f"serve --database-file {self._dsn_file} --host 127.0.0.1 --port {port}"
            f" --store {self.folder}/store",
            {
                **_code_environment(source),
                **{f"DULY_{name}": value for name, value in settings.items()},
            },
        )
        until(lambda: self._is_serving(server, port), "the server to be ready")
        return server

    def leader(self, url: str | None = None) -> tuple[str, int] | None:
        """Return the leader and its term, as the server at `url` reports; None without a leader."""
        servers = self.client(url).list_servers()["items"]
        leaders = [
            (server["name"], duty["term"]) for server in servers for duty in server["duties"]
        ]
        return leaders[0] if leaders else None

    def start_agent(
        self, name: str = "node-a", url: str | None = None, source: Path | None = None
    ) -> Program:
        token = self.folder / f"{name}.token"
        if not token.exists():
            token.touch(mode=0o600)
            token.write_text(self._token)
        agent = self._start(
            name,
            f"agent --url {url or self.url} --join-token-file {token} --data {self.folder}/{name}"
            f" --name {name} --isolation process --cpu 4 --memory 4GiB --disk 4GiB"
            f" --label name={name}",
            _code_environment(source),
        )
        until(lambda: self.node(name) == "ready" or not agent.is_running(), f"{name} to join")
        assert agent.is_running(), agent.log.read_text()
        return agent

    def await_ended(self, tasks: Iterable[str]) -> dict[str, Task]:
        """Wait until all tasks have ended, and return them by id."""
        client = self.client(self.urls)
        listed = {task["id"]: task for task in client.iter_tasks()}
        return {
            task: known
            if (known := listed.get(task)) and known["status"] in FINAL_STATUSES
            else client.wait(task, timeout=60)
            for task in tasks
        }

    def violations(self, acknowledged: Iterable[str]) -> list[str]:
        """Check all invariants; `acknowledged` are all tasks that were acknowledged."""
        calls = [Call(op="submit", outcome="ok", result={"id": task}) for task in acknowledged]
        return [str(violation) for violation in self.judge(calls)]

    def judge(self, calls: Sequence[Call]) -> list[Violation]:
        """Check all invariants; `calls` are all calls of clients."""
        evidence = Evidence(
            dump=database_dump.read(self.dsn),
            calls=calls,
            entries=self.ledger.entries(),
            settings=RunSettings(grace=1.0, ttl=2.0),
        )
        return judge(evidence)

    def run(self, command: str, source: Path | None = None) -> Program:
        """Start a CLI command."""
        return self._start(command.split()[-1].lstrip("-"), command, _code_environment(source))

    def node(self, name: str) -> str | None:
        nodes = self.client(self.urls).list_nodes()["items"]
        return next((node["status"] for node in nodes if node["name"] == name), None)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        for program in reversed(self.programs):
            if program.is_running():
                program.send(signal.SIGCONT)
                program.kill()
        stale_cgroups.remove(lock.parent for lock in self.folder.glob("*/agent.lock"))

    def processes_of(self, task: str) -> list[int]:
        """Return the processes with the id of the task in their environment."""
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if f"DULY_TASK_ID={task}".encode() in (entry / "environ").read_bytes():
                        pids.append(int(entry.name))
                except OSError:
                    continue
        return pids

    def _start(
        self, name: str, command: str, extra_environment: dict[str, str] | None = None
    ) -> Program:
        args = [*self._program, *command.split()]
        log = self.folder / f"{name}-{time.monotonic_ns()}.log"
        program = Program(args, log=log, env={**self._env, **(extra_environment or {})})
        self.programs.append(program)
        return program

    def _is_serving(self, server: Program, port: int) -> bool:
        assert server.is_running(), server.log.read_text()
        if not server.has_logged("ready:"):
            return False
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True
