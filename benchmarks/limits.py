"""Measures the limits of the machine: raw PostgreSQL and raw processes, without Duly."""

import asyncio
import io
import multiprocessing
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from duly.store.embedded.programs import bundled_programs

RATE = re.compile(r"tps = ([\d.]+)")
TRUE = "/bin/true"


def rate(count: int, work: Callable[[], object]) -> float:
    """Return how many of `count` things `work` does in a second."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def spawn_rate(count: int) -> float:
    """Return how often two processes start and await /bin/true in a second."""
    return rate(count, lambda: on_two(lambda _: _spawn(count // 2)))


def xargs_rate(count: int) -> float:
    """Return how often `xargs -P2` starts and awaits /bin/true in a second."""
    words = "x\n" * count
    command = ["xargs", "-P2", "-n1", TRUE]
    return rate(count, lambda: subprocess.run(command, input=words, text=True, check=True))


def on_two(work: Callable[[int], None]) -> None:
    """Let two processes work at the same time, each of which is told which one it is."""
    context = multiprocessing.get_context("fork")
    halves = [context.Process(target=work, args=(half,)) for half in range(2)]
    for half in halves:
        half.start()
    for half in halves:
        half.join()
        if half.exitcode:
            raise RuntimeError("a process could not be started, or failed")


def _spawn(count: int) -> None:
    for _ in range(count):
        _, status = os.waitpid(os.posix_spawn(TRUE, ["true"], {}), 0)
        if status:
            raise RuntimeError(f"{TRUE} ended with status {status}")


def copy_rate(dsn: str, tables: dict[str, str], count: int, batch: int) -> float:
    """Return how many rows a second COPY stores, `batch` in a transaction, over one connection.

    `tables` gives, for each table to copy to, the one that holds the same rows. Those are read
    first: what is measured is sending them and the commit, nothing else.
    """
    return asyncio.run(_copy_rate(dsn, tables, count, batch))


async def _copy_rate(dsn: str, tables: dict[str, str], count: int, batch: int) -> float:
    conn = await asyncpg.connect(dsn)
    try:
        batches = [
            [(to, await _read(conn, of, offset, batch)) for to, of in tables.items()]
            for offset in range(0, count, batch)
        ]
        began = time.perf_counter()
        for tables_of_batch in batches:
            async with conn.transaction():
                for to, data in tables_of_batch:
                    schema, _, table = to.partition(".")
                    await conn.copy_to_table(
                        table, schema_name=schema, source=io.BytesIO(data), format="binary"
                    )
        return count / (time.perf_counter() - began)
    finally:
        await conn.close()


async def _read(conn: asyncpg.Connection, table: str, offset: int, count: int) -> bytes:
    data = io.BytesIO()
    query = f"select * from {table} order by 1 offset {offset} limit {count}"
    await conn.copy_from_query(query, output=data, format="binary")
    return data.getvalue()


def commit_rate(dsn: str, statement: str, clients: int, seconds: float) -> float:
    """Return how often `clients` connections commit `statement` in a second, with pgbench."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    environment = os.environ | {
        "PGHOST": query["host"][0],
        "PGPORT": query["port"][0],
        "PGUSER": unquote(parts.username or ""),
        "PGPASSWORD": unquote(parts.password or ""),
        "PGDATABASE": parts.path.lstrip("/"),
    }
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(statement + ";\n")
        script.flush()
        command = [
            str(Path(bundled_programs()) / "pgbench"),
            *("--no-vacuum", "--protocol=prepared", "--jobs=2", f"--client={clients}"),
            *(f"--time={max(round(seconds), 1)}", f"--file={script.name}"),
        ]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = RATE.search(done.stdout)
    if done.returncode or found is None:
        raise RuntimeError(f"pgbench: {done.stderr[-2000:]}")
    return float(found[1])
