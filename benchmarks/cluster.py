"""Runs a private PostgreSQL for the benchmarks, configured as `duly up` does, with fsync on."""

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg

from duly.store.embedded.embedded_postgres import EmbeddedPostgres
from duly.store.embedded.postmaster import find_processes

TEMPLATE = "bench_template"


class Cluster:
    """A running PostgreSQL; `folder` is for files that belong to the run."""

    def __init__(self, dsn: str, folder: Path, *, is_kept: bool = False) -> None:
        self.dsn = dsn
        self.folder = folder
        self._is_kept = is_kept
        self._names = (f"bench_{number}" for number in itertools.count(1))

    @property
    def pids(self) -> list[int]:
        """Return the current processes of PostgreSQL."""
        return find_processes(Path(value(self.dsn, "show data_directory")))

    def dsn_of(self, database: str) -> str:
        """Return the DSN of a database."""
        return urlunsplit(urlsplit(self.dsn)._replace(path=f"/{database}"))

    @contextmanager
    def database(self, template: str | None = TEMPLATE) -> Iterator[str]:
        """Create a database for the duration of the block; yields its DSN."""
        name = next(self._names)
        clause = f" template {template} strategy file_copy" if template else ""
        run(self.dsn, f"create database {name}{clause}")
        try:
            yield self.dsn_of(name)
        finally:
            self.drop(name)

    @contextmanager
    def filled_database(self, name: str, fill: Callable[[str], None]) -> Iterator[str]:
        """Yield the DSN of a filled database, which an earlier run of this cluster may have left.

        While in use the database has another name, so that one left by an interrupted run is not
        reused.
        """
        name_in_use = f"{name}_in_use"
        if self.has(name_in_use):
            self.drop(name_in_use)
        if self.has(name):
            run(self.dsn, f"alter database {name} rename to {name_in_use}")
        else:
            run(self.dsn, f"create database {name_in_use} template {TEMPLATE} strategy file_copy")
            fill(self.dsn_of(name_in_use))
        yield self.dsn_of(name_in_use)
        if self._is_kept:
            run(self.dsn, f"alter database {name_in_use} rename to {name}")
        else:
            self.drop(name_in_use)

    def has(self, database: str) -> bool:
        """Return True if the database exists."""
        return bool(rows(self.dsn, "select from pg_database where datname = $1", database))

    def drop(self, database: str) -> None:
        """Drop a database and its sessions; only a superuser can end those of autovacuum."""
        run(as_superuser(self.dsn), f"drop database {database} with (force)")


def as_superuser(dsn: str) -> str:
    """Return `dsn` for the superuser of an embedded cluster; Duly itself does not use that role."""
    parts = urlsplit(dsn)
    folder = Path(parse_qs(parts.query)["host"][0]).parent
    password = (folder / "postgres.superuser.password").read_text().strip()
    return urlunsplit(parts._replace(netloc=f"postgres:{password}@"))


def _grant_privileges(dsn: str) -> None:
    """Grant the role `duly` what it lacks in production: to create databases and to checkpoint."""
    run(as_superuser(dsn), "alter role duly createdb", "grant pg_checkpoint to duly")


@contextmanager
def started(data_folder: Path | None = None) -> Iterator[Cluster]:
    """Run a PostgreSQL for the duration of the block, in `data_folder` or a temporary folder."""
    folder = (
        Path(tempfile.mkdtemp(prefix="duly-bench-"))
        if data_folder is None
        else data_folder.absolute()
    )
    (folder / "pg").mkdir(mode=0o755, parents=True, exist_ok=True)
    # PostgreSQL and the tasks run as other users if we are root, and must be able to enter.
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder / "pg")
    try:
        try:
            dsn = server.start()
            _grant_privileges(dsn)
            yield Cluster(dsn, folder, is_kept=data_folder is not None)
        finally:
            server.stop()
    finally:
        if data_folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def run(dsn: str, *statements: str) -> None:
    """Execute statements one by one."""

    async def _run() -> None:
        conn = await asyncpg.connect(dsn)
        try:
            for statement in statements:
                await conn.execute(statement)
        finally:
            await conn.close()

    asyncio.run(_run())


def rows(dsn: str, query: str, *arguments: Any) -> list[asyncpg.Record]:
    """Return the rows of a query."""

    async def _fetch() -> list[asyncpg.Record]:
        conn = await asyncpg.connect(dsn)
        try:
            records: list[asyncpg.Record] = await conn.fetch(query, *arguments)
            return records
        finally:
            await conn.close()

    return asyncio.run(_fetch())


def value(dsn: str, query: str, *arguments: Any) -> Any:
    """Return the single value of a query."""
    return rows(dsn, query, *arguments)[0][0]
