"""Starts Duly's processes as a user does, and returns their address."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

import duly
from benchmarks import usage
from benchmarks.cluster import Cluster
from duly.launch import database
from duly.model.tenant import Scope
from duly.private_file import write_private
from duly.store.accounts import tenants

DULY = str(Path(sys.executable).with_name("duly"))
READY = re.compile(r"^ready: (http://\S+)", re.MULTILINE)
PAGES = re.compile(r"^pages: ", re.MULTILINE)
PATIENCE = 60.0


@dataclass(frozen=True)
class Installation:
    """What runs, and how to reach it."""

    cluster: Cluster
    dsn: str = field(repr=False)
    url: str
    key: str = field(repr=False)
    process: subprocess.Popen[bytes]
    folder: Path

    def client(self) -> duly.Client:
        """Return a client of its own."""
        return duly.Client(self.url, self.key)

    @property
    def parts(self) -> dict[str, list[int]]:
        """Return the processes by what they are: server, agent and what it starts, pages."""
        found: dict[str, list[int]] = {"server": [self.process.pid]}
        for child in usage.children(self.process.pid):
            command = usage.command(child)
            name = "agent" if "agent" in command else "pages" if "dashboard" in command else "other"
            found[name] = [child, *usage.descendants(child)]
        return found

    @property
    def pids(self) -> list[int]:
        """Return all of its processes, without PostgreSQL."""
        return [pid for pids in self.parts.values() for pid in pids]


@contextmanager
def up(cluster: Cluster, dsn: str, *, pages: bool = False) -> Iterator[Installation]:
    """Run `duly up` on a database: a server and a node with this machine's capacity."""
    flags = ["--dashboard" if pages else "--no-dashboard"]
    with _started(cluster, dsn, "up", flags, PAGES if pages else READY) as installation:
        yield installation


@contextmanager
def serve(cluster: Cluster, dsn: str, *, module: str | None = None) -> Iterator[Installation]:
    """Run `duly serve` on a database: a server alone, without a node.

    With `module`, that one is run in place of the command `duly`.
    """
    program = [DULY] if module is None else [sys.executable, "-m", module]
    with _started(cluster, dsn, "serve", [], READY, program) as installation:
        yield installation


def make_key(dsn: str, tenant: str, scope: Scope = Scope.SUBMIT) -> str:
    """Return a new key of a tenant, to submit with unless told."""

    async def make() -> str:
        conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
        try:
            return await tenants.create_key(conn, tenant, "bench", [scope])
        finally:
            await conn.close()

    return asyncio.run(make())


async def _forget_store(dsn: str) -> None:
    """Let a database be used with a new store: it may be a copy of one that was filled before."""
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
    try:
        await conn.execute("update object_store set registered_at = null, registered_by = null")
    finally:
        await conn.close()


@contextmanager
def _started(
    cluster: Cluster,
    dsn: str,
    name: str,
    flags: list[str],
    said: re.Pattern[str],
    program: Sequence[str] = (DULY,),
) -> Iterator[Installation]:
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=cluster.folder))
    folder.chmod(0o711)
    (folder / "home").mkdir()
    write_private(folder / "dsn", dsn + "\n")
    place = ["--store", str(folder / "objects")] if name == "serve" else ["--data", str(folder)]
    (folder / "objects").mkdir(exist_ok=True)
    key_file = folder / "admin.key"
    asyncio.run(database.bring_up_to_date(dsn))
    asyncio.run(database.ensure_admin_key(dsn, key_file))
    asyncio.run(_forget_store(dsn))
    given = ["--database-file", str(folder / "dsn"), "--port", "0", *place, *flags]
    command = [*program, name, *given]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(folder),
            start_new_session=True,
        )
    try:
        url = _await(process, folder / "log", said)
        yield Installation(cluster, dsn, url, key_file.read_text().strip(), process, folder)
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes], patience: float = 30.0) -> None:
    """End a process politely, then make sure that nothing of it is left."""
    family = [process.pid, *usage.descendants(process.pid)]
    process.terminate()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        for pid in family:
            usage.signal_to(pid, signal.SIGKILL)
        process.wait()


def _environment(folder: Path) -> dict[str, str]:
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("DULY_", "XDG_", "PG"))
    }
    return kept | {"HOME": str(folder / "home")}


def _await(process: subprocess.Popen[bytes], log: Path, said: re.Pattern[str]) -> str:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        text = log.read_text(errors="replace")
        ready = READY.search(text)
        if ready and said.search(text):
            return ready[1]
        time.sleep(0.02)
    raise RuntimeError(f"it did not start:\n{log.read_text(errors='replace')[-4000:]}")
