"""Full disks, of a node and of PostgreSQL."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from duly.agent.supervision.output import DISK_FULL_NOTICE
from duly.errors import Unavailable
from duly.store import migrate
from duly.store.embedded.embedded_postgres import EmbeddedPostgres
from tests.conftest import allow_reading_uptime
from tests.faults.lab import Lab, until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]
MOUNT, UMOUNT = shutil.which("mount") or "mount", shutil.which("umount") or "umount"


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    command = [MOUNT, "-t", "tmpfs", "-o", f"size={size},mode=755", "duly-test", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run([UMOUNT, "--lazy", str(folder)], check=True)


def fill(file: Path) -> None:
    """Write until not even a byte is free."""
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        for size in (2**20, 4096, 1):
            with suppress(OSError):
                while ballast.write(bytes(size)):
                    pass


def await_end(lab: Lab, task: str) -> dict[str, object]:
    ended = lab.client().wait(task, timeout=30)
    return {"status": ended["status"], **(ended.get("reason") or {})}


def test_a_node_with_a_full_disk_reports_it_and_continues(lab: Lab) -> None:
    with small_disk(lab.folder / "node-a", "4m") as disk:
        lab.start_server()
        agent = lab.start_agent()
        large_output = lab.client().submit(
            command=["sh", "-c", "yes | head -c 9000000; echo the end"]
        )
        assert await_end(lab, large_output["id"])["status"] == "done"
        log = lab.client().read_logs(large_output["id"])
        assert log.endswith(DISK_FULL_NOTICE) and len(log) > 2**20 and log.startswith(b"y\ny\n")

        fill(disk / "ballast")
        writes = lab.client().submit(command=["sh", "-c", "echo x > file"], max_attempts=1)
        ended = await_end(lab, writes["id"])
        assert (ended["status"], ended["code"]) == ("failed", "node_disk_full")
        small_output = lab.client().submit(command=["sh", "-c", "yes | head -c 9000"])
        assert await_end(lab, small_output["id"])["status"] == "done"
        log = lab.client().read_logs(small_output["id"])
        assert log.startswith(b"y\ny\n") and log.endswith(DISK_FULL_NOTICE)

        # A script cannot be written there. That is no failure of the task, which waits.
        script = lab.client().submit(source="#!/bin/sh\necho hello\n", max_attempts=1)
        until(
            lambda: lab.client().get_node("node-a").get("shortage") == "disk space",
            "the node to report its shortage",
        )
        until(
            lambda: lab.client().explain(script["id"])["code"] == "nodes_short",
            "the attempt to be returned",
        )
        (disk / "ballast").unlink()
        assert await_end(lab, script["id"])["status"] == "done"
        task = lab.client().get_task(script["id"])
        assert (task["failures"], task["losses"]) == (0, 0)
        assert agent.is_running()
        assert list((disk / "spool").iterdir()) == []


@pytest.fixture
def postgres_on_a_small_disk(folder: Path) -> Iterator[tuple[EmbeddedPostgres, Path]]:
    with small_disk(folder / "disk", "200m") as disk:
        server = EmbeddedPostgres(disk / "data")
        (disk / "data").mkdir(mode=0o755)
        (disk / "ballast").write_bytes(bytes(40 * 2**20))
        yield server, disk / "ballast"
        server.stop()


async def _migrate(dsn: str) -> None:
    conn = await asyncpg.connect(dsn)
    await migrate.migrate(conn)
    await conn.close()
    await allow_reading_uptime(dsn)


async def _stored(dsn: str) -> set[str]:
    conn = await asyncpg.connect(dsn)
    rows = await conn.fetch("select id from duly.tasks")
    await conn.close()
    return {str(row["id"]) for row in rows}


def test_postgresql_with_a_full_disk_refuses_and_loses_nothing(
    folder: Path, postgres_on_a_small_disk: tuple[EmbeddedPostgres, Path]
) -> None:
    postgres, ballast = postgres_on_a_small_disk
    dsn = postgres.start()
    asyncio.run(_migrate(dsn))
    lab = Lab(folder, dsn)
    try:
        server = lab.start_server()
        client = lab.client(seconds=0.5)
        filler = os.urandom(10_000).hex()  # hardly compressible
        batch = [{"command": ["true"], "env": {"FILLER": filler}} for _ in range(200)]
        acknowledged: list[str] = []
        with pytest.raises(Unavailable):
            for _ in range(100):
                acknowledged += client.submit_many(batch)
                acknowledged.append(client.submit(**batch[0])["id"])  # type: ignore[arg-type]
        assert acknowledged
        with pytest.raises(Unavailable):
            client.submit_many(batch)

        ballast.unlink()
        # It may have exited, and would be restarted in production.
        postgres.start()
        task = until(lambda: _try_to_submit(lab), "the server to work again", seconds=20)
        assert server.is_running() and not server.has_logged("Traceback")
        assert {*acknowledged, task} <= asyncio.run(_stored(dsn))
    finally:
        lab.close()


def _try_to_submit(lab: Lab) -> str | None:
    try:
        return lab.client(seconds=0.5).submit(command=["true"])["id"]
    except Unavailable:
        return None
