"""What is asked of an embedded PostgreSQL, and seen of it from outside."""

import asyncio
import os
import stat
from pathlib import Path

import asyncpg
import pytest

from duly.store.embedded import postmaster

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another user")


def ask(dsn: str, query: str) -> object:
    async def run() -> object:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(run())


def server_pid(folder: Path) -> int:
    pid = postmaster.find_postmaster(folder / "postgres")
    assert pid is not None
    return pid


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)
