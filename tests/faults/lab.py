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
from tests.torture.cluster import DULY, make_secrets
from tests.torture.evidence import Evidence, Rules, Violation
from tests.torture.history import Call
from tests.torture.invariants import judge
from tests.torture.ledger import Ledger
from tests.torture.processes import Program, until

PORTS = iter(random.sample(range(10_000, 20_000), 10_000))
"""Below those that the kernel hands out, and in another order in every process."""
QUICK = {
    "DULY_LEASES__HEARTBEAT": "0.3s",
    "DULY_LEASES__TTL": "2s",
    "DULY_RETRIES__BASE_DELAY": "0.1s",
    "DULY_EXECUTION__GRACE": "1s",
}


def free_port() -> int:
    """Return a port that nobody takes while its server is away.

    Those that the kernel hands out by itself are at times the other ends of connections, and
    even that of one with itself: of whoever asks for a server that is not there.
    """
    while True:
        port = next(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _running(source: Path | None) -> dict[str, str]:
    """Return what lets a process run the code in `source`; ours when there is none."""
    return {"PYTHONPATH": str(source)} if source else {}


class Lab:
    """Servers and nodes on a database of their own; most tests take one of each."""

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
        self.key, self._token = secrets or asyncio.run(make_secrets(dsn))
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
            **QUICK,
            "HOME": str(folder / "home"),
            "DULY_URL": self.url,
            "DULY_KEY": self.key,
        }

    def client(self, url: str | None = None, seconds: float = 30) -> Client:
        which = (url or self.url, seconds)
        if which not in self._clients:
            patience = Patience(total=timedelta(seconds=seconds))
            self._clients[which] = Client(which[0], self.key, patience=patience)
        return self._clients[which]

    def start_server(
        self,
        which: int = 0,
        source: Path | None = None,
        dsn: str | None = None,
        **settings: str,
    ) -> Program:
        """Start a server, with settings as in the environment, perhaps past a proxy.

        `source` is the code that it runs, if that is not ours.
        """
        if dsn is not None:
            self._dsn_file.write_text(dsn)
        port = self.ports[which]
        server = self._start(
            f"server-at-{port}",
            f"serve --database-file {self._dsn_file} --host 127.0.0.1 --port {port}"
            f" --store {self.folder}/store",
            {**_running(source), **{f"DULY_{name}": value for name, value in settings.items()}},
        )
        until(lambda: self._answers(server, port), "the server to be ready")
        return server

    def leader(self, url: str | None = None) -> tuple[str, int] | None:
        """Return which server leads, and in which term, as the server at `url` tells."""
        servers = self.client(url).list_servers()["items"]
        found = [(one["name"], duty["term"]) for one in servers for duty in one["duties"]]
        return found[0] if found else None

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
            _running(source),
        )
        until(lambda: self.node(name) == "ready" or not agent.is_running(), f"{name} to join")
        assert agent.is_running(), agent.log.read_text()
        return agent

    def ended(self, told: Iterable[str]) -> dict[str, Task]:
        """Return what became of tasks; those that have not ended by now are waited for."""
        client = self.client(self.urls)
        listed = {task["id"]: task for task in client.iter_tasks()}
        return {
            task: one
            if (one := listed.get(task)) and one["status"] in FINAL_STATUSES
            else client.wait(task, timeout=60)
            for task in told
        }

    def violations(self, told: Iterable[str]) -> list[str]:
        """Judge what has happened so far; `told` are all the tasks that were acknowledged."""
        calls = [Call(op="submit", outcome="ok", result={"id": task}) for task in told]
        return [str(violation) for violation in self.judge(calls)]

    def judge(self, calls: Sequence[Call]) -> list[Violation]:
        """Judge what has happened so far; `calls` are all that clients have made."""
        evidence = Evidence(
            books=database_dump.read(self.dsn),
            calls=calls,
            entries=self.ledger.entries(),
            rules=Rules(grace=1.0, ttl=2.0),
        )
        return judge(evidence)

    def run(self, command: str, source: Path | None = None) -> Program:
        """Start a command of a person."""
        return self._start(command.split()[-1].lstrip("-"), command, _running(source))

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
        """Return the processes that carry the task's id in their environment."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if f"DULY_TASK_ID={task}".encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def _start(self, name: str, command: str, more: dict[str, str] | None = None) -> Program:
        args = [*self._program, *command.split()]
        log = self.folder / f"{name}-{time.monotonic_ns()}.log"
        program = Program(args, log=log, env={**self._env, **(more or {})})
        self.programs.append(program)
        return program

    def _answers(self, server: Program, port: int) -> bool:
        assert server.is_running(), server.log.read_text()
        if not server.said("ready:"):
            return False
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True
