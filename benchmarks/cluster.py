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
    """A PostgreSQL that runs; `folder` is where others may leave what belongs to a run."""

    def __init__(self, dsn: str, folder: Path, *, is_kept: bool = False) -> None:
        self.dsn = dsn
        self.folder = folder
        self._is_kept = is_kept
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

    @contextmanager
    def filled_database(self, name: str, fill: Callable[[str], None]) -> Iterator[str]:
        """Give the DSN of a database that was filled, now or in an earlier run of this cluster.

        It has another name while it is in use: what a run leaves that was cut short is no good.
        """
        used = f"{name}_in_use"
        if self.has(used):
            self.drop(used)
        if self.has(name):
            run(self.dsn, f"alter database {name} rename to {used}")
        else:
            run(self.dsn, f"create database {used} template {TEMPLATE} strategy file_copy")
            fill(self.dsn_of(used))
        yield self.dsn_of(used)
        if self._is_kept:
            run(self.dsn, f"alter database {used} rename to {name}")
        else:
            self.drop(used)

    def has(self, database: str) -> bool:
        """Say whether there is such a database."""
        found = rows(self.dsn, "select from pg_database where datname = $1", database)
        return bool(found)

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
def started(kept: Path | None = None) -> Iterator[Cluster]:
    """Start a PostgreSQL for as long as the block lasts; nothing is left of it but in `kept`."""
    folder = Path(tempfile.mkdtemp(prefix="duly-bench-")) if kept is None else kept.absolute()
    (folder / "pg").mkdir(mode=0o755, parents=True, exist_ok=True)
    # PostgreSQL and tasks run as other users when we are root, and must get through.
    folder.chmod(0o755)
    server = EmbeddedPostgres(folder / "pg")
    try:
        try:
            dsn = server.start()
            _allow_databases(dsn)
            yield Cluster(dsn, folder, is_kept=kept is not None)
        finally:
            server.stop()
    finally:
        if kept is None:
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
