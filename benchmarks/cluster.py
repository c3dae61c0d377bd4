"""A PostgreSQL of the benchmark's own: as `duly up` starts it, fsync on, with databases to fill."""

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg

from duly.store.embedded import EmbeddedPostgres
from duly.store.postmaster import find_processes

TEMPLATE = "bench_template"


class Cluster:
    """A PostgreSQL that runs; `folder` is where others may leave what belongs to a run."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self._names = (f"bench_{number}" for number in itertools.count(1))

    @property
    def pids(self) -> list[int]:
        """Return every process that PostgreSQL has now."""
        return find_processes(Path(value(self.dsn, "show data_directory")))

    def dsn_of(self, database: str) -> str:
        """Return the DSN of a database."""
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{database}"))

    @contextmanager
    def database(self, template: str | None = TEMPLATE) -> Iterator[str]:
        """Make a database for as long as the block lasts, and give its DSN."""
        name = next(self._names)
        copied = f" template {template} strategy file_copy" if template else ""
        run(self.dsn, f"create database {name}{copied}")
        try:
            yield self.dsn_of(name)
        finally:
            self.drop(name)

    def drop(self, database: str) -> None:
        """Drop a database, whoever is in it: autovacuum is there as the superuser."""
        run(as_superuser(self.dsn), f"drop database {database} with (force)")


def as_superuser(dsn: str) -> str:
    """Return `dsn` for the superuser of an embedded cluster, whom Duly itself never is."""
    parts = urlsplit(dsn)
    folder = Path(parse_qs(parts.query)["host"][0]).parent
    password = (folder / "postgres.superuser.password").read_text().strip()
    return urlunsplit(parts._replace(netloc=f"postgres:{password}@"))


def _allow_databases(dsn: str) -> None:
    """Let the role that Duly uses make databases and checkpoints, which in service it may not."""
    run(as_superuser(dsn), "alter role duly createdb", "grant pg_checkpoint to duly")


@contextmanager
def started() -> Iterator[Cluster]:
    """Start a PostgreSQL for as long as the block lasts; nothing is left of it."""
    folder = Path(tempfile.mkdtemp(prefix="duly-bench-"))
    # PostgreSQL and tasks run as other users when we are root, and must get through.
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder / "pg")
    try:
        (folder / "pg").mkdir(mode=0o755)
        try:
            dsn = server.start()
            _allow_databases(dsn)
            yield Cluster(dsn, folder)
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(dsn: str, *statements: str) -> None:
    """Run statements one by one."""

    async def _run() -> None:
        conn = await asyncpg.connect(dsn)
        try:
            for statement in statements:
                await conn.execute(statement)
        finally:
            await conn.close()

    asyncio.run(_run())


def rows(dsn: str, query: str, *arguments: Any) -> list[asyncpg.Record]:
    """Return what a query finds."""

    async def _fetch() -> list[asyncpg.Record]:
        conn = await asyncpg.connect(dsn)
        try:
            found: list[asyncpg.Record] = await conn.fetch(query, *arguments)
            return found
        finally:
            await conn.close()

    return asyncio.run(_fetch())


def value(dsn: str, query: str, *arguments: Any) -> Any:
    """Return the one value that a query finds."""
    return rows(dsn, query, *arguments)[0][0]
