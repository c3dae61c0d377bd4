"""Runs a PgBouncer in front of a test's database, in transaction mode and with few sessions."""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from duly.config import DatabaseSettings
from duly.store.database import _server_settings

SESSIONS = 2
CONFIG = """
[databases]
{database} = host={host} port={port} dbname={database} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def pooler(dsn: str, *, prepared: bool = True) -> Iterator[str]:
    """Run a PgBouncer for the duration of the block; yields its address.

    With `prepared`, the settings that Duly needs are set for the role.
    """
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed here")
    if prepared:
        asyncio.run(prepare(dsn))
    parts = urlsplit(dsn)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    folder = Path(tempfile.mkdtemp(prefix="duly-test-pgbouncer-"))
    folder.chmod(0o755)
    port = free_port()
    (folder / "pgbouncer.ini").write_text(
        CONFIG.format(
            database=parts.path.strip("/"),
            host=query["host"],
            port=query.get("port") or parts.port or 5432,
            user=query.get("user") or parts.username,
            password=query.get("password") or parts.password,
            listen=port,
            sessions=SESSIONS,
        )
    )
    # It refuses to run as root, and only the owner can reach the socket of the database.
    owner = Path(query["host"]).owner()
    user_option = ["-u", owner] if os.geteuid() == 0 else []
    process = subprocess.Popen(
        [program, *user_option, str(folder / "pgbouncer.ini")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "process up" in line:
                break
        else:
            raise AssertionError("pgbouncer exited")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


async def prepare(dsn: str) -> None:
    """Set what Duly needs for every session of the role in this database."""
    conn = await asyncpg.connect(dsn)
    for name, value in _server_settings(DatabaseSettings()).items():
        await conn.execute(
            f"alter role {await conn.fetchval('select current_user')} in database "
            f"{await conn.fetchval('select current_database()')} set {name} = '{value}'"
        )
    await conn.close()


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
