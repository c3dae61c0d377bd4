"""Measures what the machine can do without Duly: raw PostgreSQL and raw processes."""

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

TPS = re.compile(r"tps = ([\d.]+)")
TRUE = "/bin/true"


def rate(count: int, work: Callable[[], object]) -> float:
    """Run `work`, which does `count` operations; return the operations per second."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def spawn_rate(count: int) -> float:
    """Return how many /bin/true per second two processes spawn and wait for."""
    return rate(count, lambda: on_two_processes(lambda _: _spawn(count // 2)))


def xargs_rate(count: int) -> float:
    """Return how many /bin/true per second `xargs -P2` runs."""
    lines = "x\n" * count
    command = ["xargs", "-P2", "-n1", TRUE]
    return rate(count, lambda: subprocess.run(command, input=lines, text=True, check=True))


def on_two_processes(work: Callable[[int], None]) -> None:
    """Call `work` in two concurrent processes, with the numbers 0 and 1."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(worker,)) for worker in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise RuntimeError("a worker process failed")


def _spawn(count: int) -> None:
    for _ in range(count):
        _, status = os.waitpid(os.posix_spawn(TRUE, ["true"], {}), 0)
        if status:
            raise RuntimeError(f"{TRUE} ended with status {status}")


def copy_rate(dsn: str, tables: dict[str, str], count: int, batch: int) -> float:
    """Return the rows per second that COPY stores over one connection, `batch` per transaction.

    `tables` maps each table to copy into to the table that holds the rows. The rows are read
    beforehand: only sending them and the commits are measured.
    """
    return asyncio.run(_copy_rate(dsn, tables, count, batch))


async def _copy_rate(dsn: str, tables: dict[str, str], count: int, batch: int) -> float:
    conn = await asyncpg.connect(dsn)
    try:
        batches = [
            [(to, await _read(conn, source, offset, batch)) for to, source in tables.items()]
            for offset in range(0, count, batch)
        ]
        began = time.perf_counter()
        for tables_data in batches:
            async with conn.transaction():
                for to, data in tables_data:
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
    """Return how many times per second `clients` connections commit `statement`, by pgbench."""
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
    match = TPS.search(done.stdout)
    if done.returncode or match is None:
        raise RuntimeError(f"pgbench: {done.stderr[-2000:]}")
    return float(match[1])
