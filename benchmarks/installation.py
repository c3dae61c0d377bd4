"""Starts `duly up` or `duly serve` as a user would, and yields its address and key."""

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
START_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Installation:
    """A running installation, and how to reach it."""

    cluster: Cluster
    dsn: str = field(repr=False)
    url: str
    key: str = field(repr=False)
    process: subprocess.Popen[bytes]
    folder: Path

    def client(self) -> duly.Client:
        """Return a new client with the administrator's key."""
        return duly.Client(self.url, self.key)

    @property
    def parts(self) -> dict[str, list[int]]:
        """Return the processes by part: server, agent with its descendants, pages."""
        processes: dict[str, list[int]] = {"server": [self.process.pid]}
        for child in usage.children(self.process.pid):
            command = usage.command(child)
            name = "agent" if "agent" in command else "pages" if "dashboard" in command else "other"
            processes[name] = [child, *usage.descendants(child)]
        return processes

    @property
    def pids(self) -> list[int]:
        """Return all processes except PostgreSQL."""
        return [pid for pids in self.parts.values() for pid in pids]


@contextmanager
def up(cluster: Cluster, dsn: str, *, pages: bool = False) -> Iterator[Installation]:
    """Run `duly up` on a database: a server and a node with this machine's capacity."""
    flags = ["--dashboard" if pages else "--no-dashboard"]
    with _run_duly(cluster, dsn, "up", flags, PAGES if pages else READY) as installation:
        yield installation


@contextmanager
def serve(cluster: Cluster, dsn: str, *, module: str | None = None) -> Iterator[Installation]:
    """Run `duly serve` on a database: a server alone, without a node.

    With `module`, that module is run in place of the command `duly`.
    """
    program = [DULY] if module is None else [sys.executable, "-m", module]
    with _run_duly(cluster, dsn, "serve", [], READY, program) as installation:
        yield installation


def create_key(dsn: str, tenant: str, scope: Scope = Scope.SUBMIT) -> str:
    """Return a new key of a tenant."""

    async def create() -> str:
        conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
        try:
            return await tenants.create_key(conn, tenant, "bench", [scope])
        finally:
            await conn.close()

    return asyncio.run(create())


async def _unregister_store(dsn: str) -> None:
    """Make the database forget its object store: it may be a copy of one that had another."""
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "duly"})
    try:
        await conn.execute("update object_store set registered_at = null, registered_by = null")
    finally:
        await conn.close()


@contextmanager
def _run_duly(
    cluster: Cluster,
    dsn: str,
    name: str,
    flags: list[str],
    ready_pattern: re.Pattern[str],
    program: Sequence[str] = (DULY,),
) -> Iterator[Installation]:
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=cluster.folder))
    folder.chmod(0o711)
    (folder / "home").mkdir()
    write_private(folder / "dsn", dsn + "\n")
    data_options = (
        ["--store", str(folder / "objects")] if name == "serve" else ["--data", str(folder)]
    )
    (folder / "objects").mkdir(exist_ok=True)
    key_file = folder / "admin.key"
    asyncio.run(database.bring_up_to_date(dsn))
    asyncio.run(database.ensure_admin_key(dsn, key_file))
    asyncio.run(_unregister_store(dsn))
    options = ["--database-file", str(folder / "dsn"), "--port", "0", *data_options, *flags]
    command = [*program, name, *options]
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
        url = _await_ready(process, folder / "log", ready_pattern)
        yield Installation(cluster, dsn, url, key_file.read_text().strip(), process, folder)
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes], timeout: float = 30.0) -> None:
    """Terminate a process; if it does not end in time, kill it and its descendants."""
    tree = [process.pid, *usage.descendants(process.pid)]
    process.terminate()
    try:
        process.wait(timeout=timeout)
    except subprocess.TimeoutExpired:
        for pid in tree:
            usage.send_signal(pid, signal.SIGKILL)
        process.wait()


def _environment(folder: Path) -> dict[str, str]:
    inherited = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("DULY_", "XDG_", "PG"))
    }
    return inherited | {"HOME": str(folder / "home")}


def _await_ready(
    process: subprocess.Popen[bytes], log: Path, ready_pattern: re.Pattern[str]
) -> str:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        text = log.read_text(errors="replace")
        ready = READY.search(text)
        if ready and ready_pattern.search(text):
            return ready[1]
        time.sleep(0.02)
    raise RuntimeError(f"Duly did not start:\n{log.read_text(errors='replace')[-4000:]}")
