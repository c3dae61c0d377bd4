"""PostgreSQL in a folder: private, durable, and never in the way of the next start."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from duly.store.embedded import embedded_postgres, postmaster
from duly.store.embedded.embedded_postgres import EmbeddedPostgres
from tests.conftest import as_superuser
from tests.store.embedded.clusters import DEBIAN_15, ask, mode, server_pid


@pytest.mark.parametrize(
    "programs",
    [
        None,
        pytest.param(
            DEBIAN_15,
            marks=pytest.mark.skipif(not DEBIAN_15.exists(), reason="PostgreSQL 15 is not here"),
        ),
    ],
)
def test_a_cluster_is_durable_private_and_kept_over_a_restart(folder, programs):
    postgres = EmbeddedPostgres(folder, programs)
    dsn = postgres.start()
    settings = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "data_checksums": "on",
        "server_encoding": "UTF8",
        "listen_addresses": "",
        "password_encryption": "scram-sha-256",
        "TimeZone": "UTC",
    }
    assert {name: ask(dsn, f"show {name}") for name in settings} == settings
    rules = "select array_agg(distinct auth_method) from pg_hba_file_rules"
    assert ask(as_superuser(dsn), rules) == ["scram-sha-256"]
    assert mode(folder / "postgres.password") == 0o600
    assert mode(folder / "postgres.socket") == 0o700
    assert mode(folder / "postgres.log") == 0o600

    ask(dsn, "create table kept (); ")
    postgres.stop()
    assert postmaster.find_processes(folder / "postgres") == []
    assert ask(postgres.start(), "select to_regclass('kept')") == "kept"
    postgres.stop()


def test_a_running_cluster_is_adopted(postgres, folder):
    pid = server_pid(folder)
    again = EmbeddedPostgres(folder)
    assert ask(again.start(), "select 1") == 1
    assert server_pid(folder) == pid
    again.stop()
    assert postmaster.find_processes(folder / "postgres") == []


def test_the_cluster_survives_the_death_of_its_starter_and_is_adopted(folder):
    start = (
        "import sys; from pathlib import Path\n"
        "from duly.store.embedded.embedded_postgres import EmbeddedPostgres\n"
        "postgres = EmbeddedPostgres(Path(sys.argv[1])); postgres.start()\n"
        "print('started', flush=True); sys.stdin.read()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", start, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with starter:
        assert starter.stdout.readline() == b"started\n"
        pid = server_pid(folder)
        # As a terminal would: to the whole group, first Ctrl-C, then the window is closed.
        os.killpg(starter.pid, signal.SIGINT)
        os.killpg(starter.pid, signal.SIGKILL)
    assert ask(EmbeddedPostgres(folder).start(), "select 1") == 1
    assert server_pid(folder) == pid


def test_no_secret_is_in_the_arguments_of_any_process(postgres, folder):
    names = ("postgres.password", "postgres.superuser.password")
    passwords = [(folder / name).read_text().strip() for name in names]
    said = (folder / "postgres.log").read_text()
    for pid in postmaster.find_processes(folder / "postgres"):
        # A session that has just ended may still be found, and be gone when it is looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            said += Path(f"/proc/{pid}/cmdline").read_text()
            said += Path(f"/proc/{pid}/environ").read_text()
    assert str(folder) in said
    assert not [password for password in passwords if password in said]


def test_sessions_of_a_killed_server_do_not_block_the_next_one(postgres, folder):
    async def lose_the_server_under_a_busy_session() -> None:
        connection = await asyncpg.connect(postgres.start())
        busy = asyncio.create_task(connection.execute("select pg_sleep(600)"))
        await asyncio.sleep(0)  # lets the statement be sent
        os.kill(server_pid(folder), signal.SIGKILL)
        dsn = await asyncio.to_thread(EmbeddedPostgres(folder).start)
        with pytest.raises((asyncpg.PostgresError, OSError)):
            await busy
        again = await asyncpg.connect(dsn)
        assert await again.fetchval("select 1") == 1
        await again.close()

    asyncio.run(lose_the_server_under_a_busy_session())


def test_a_pid_file_whose_number_belongs_to_another_program_does_not_block(folder):
    postgres = EmbeddedPostgres(folder)
    postgres.start()
    pid = server_pid(folder)
    owner = (folder / "postgres").stat()
    os.kill(pid, signal.SIGKILL)
    postgres.stop()
    other = subprocess.Popen(
        [shutil.which("sleep"), "600"], **({"user": owner.st_uid} if os.geteuid() == 0 else {})
    )
    for lock in ("postgres/postmaster.pid", "postgres.socket/.s.PGSQL.5432.lock"):
        text = (folder / lock).read_text()
        (folder / lock).write_text(text.replace(str(pid), str(other.pid), 1))
    try:
        assert ask(EmbeddedPostgres(folder).start(), "select 1") == 1
        assert other.poll() is None, "a process that is not PostgreSQL's was touched"
    finally:
        other.kill()
        other.wait()


def test_a_frozen_server_is_replaced(postgres, folder, monkeypatch):
    monkeypatch.setattr(embedded_postgres, "ADOPTION_TIMEOUT_SECONDS", 1.0)
    pid = server_pid(folder)
    os.kill(pid, signal.SIGSTOP)  # first, so that it forks no more
    for process in postmaster.find_processes(folder / "postgres"):
        with contextlib.suppress(ProcessLookupError):  # autovacuum workers end by themselves
            os.kill(process, signal.SIGSTOP)
    assert ask(EmbeddedPostgres(folder).start(), "select 1") == 1
    assert server_pid(folder) != pid
