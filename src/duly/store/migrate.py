"""Migrates a database to the schema of this version of Duly.

Migrations are forward only, numbered without gaps, applied under an advisory lock, and recorded
with a checksum: a file that changed after it was applied is an error, because the schema of the
database is then unknown.

Servers of the previous version keep running during a migration. A step declares with
`-- serves: NNNN` which servers it leaves working: those that know the steps up to NNNN, which may
also be restarted. Without that line, only newer servers may start.

Decision: docs/adr/0008-schema-and-migrations.md.
"""

import asyncio
import hashlib
import re
from importlib import resources

import asyncpg
import msgspec

from duly.errors import ConfigError, Unavailable
from duly.store.connections import request_role
from duly.store.database import Connection, load_statements

SQL = load_statements("migrate.sql")
MAX_TRIES = 5
"""Tries of a step that fails on a lock timeout or a deadlock with other transactions."""
RETRY_INTERVAL_SECONDS = 0.5
ADVISORY_LOCK = 0x64756C79
"""The advisory lock of migrations: "duly" in ASCII."""
MIN_POSTGRESQL_VERSION = 15
SERVES = re.compile(r"^-- serves: (\d{4})$", re.MULTILINE)


class Migration(msgspec.Struct, frozen=True):
    """One numbered step of the schema."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Return the hash by which a file that changed after it was applied is detected."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def serves(self) -> int:
        """Return the oldest step whose servers keep working after this one."""
        found = SERVES.search(self.text)
        return int(found[1]) if found else self.number


class MigrationStatus(msgspec.Struct, frozen=True):
    """The applied and the pending migrations of a database, and its PostgreSQL version."""

    applied: list[str]
    pending: list[str]
    postgresql: str


def migrations() -> list[Migration]:
    """Return all migrations in order; raises ConfigError if a number is missing."""
    folder = resources.files("duly.store").joinpath("migrations")
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    found = [
        Migration(int(name[:4]), name.removesuffix(".sql"), folder.joinpath(name).read_text())
        for name in files
    ]
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        raise ConfigError(f"Migrations are not numbered without gaps: {', '.join(files)}.")
    return found


async def migrate(conn: Connection, role: str = request_role.ROLE) -> list[str]:
    """Apply the pending steps, each in a transaction, and return their names.

    `role` is the role that requests assume; none if it is empty. Its privileges are granted even
    if no step is pending: the role may have been created since.
    """
    await _check_version(conn)
    await conn.execute(SQL["lock"], ADVISORY_LOCK)
    try:
        await conn.execute(SQL["prepare"])
        done = await _applied(conn)
        fresh = [migration for migration in migrations() if migration.number not in done]
        for migration in fresh:
            await _apply(conn, migration)
        if role:
            await request_role.ensure_role(conn, role)
        return [migration.name for migration in fresh]
    finally:
        await conn.execute(SQL["unlock"], ADVISORY_LOCK)


async def _apply(conn: Connection, migration: Migration) -> None:
    """Apply a step; retry on a lock conflict, which leaves nothing of the step behind."""
    for tries in range(MAX_TRIES, 0, -1):
        try:
            async with conn.transaction():
                await conn.execute(SQL["set_lock_timeout"])
                await conn.execute(migration.text)
                await conn.execute(
                    SQL["record"],
                    migration.number,
                    migration.name,
                    migration.checksum,
                    migration.serves,
                )
            return
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            if tries == 1:
                raise Unavailable(
                    f"Migration {migration.name} waited too long for a table that somebody uses; "
                    "nothing of it was applied. Try again."
                ) from error
        await asyncio.sleep(RETRY_INTERVAL_SECONDS)


async def status(conn: Connection) -> MigrationStatus:
    """Return the applied and the pending migrations, without changing anything."""
    await _check_version(conn)
    done = await _applied(conn) if await conn.fetchval(SQL["exists"]) else set()
    return MigrationStatus(
        applied=[m.name for m in migrations() if m.number in done],
        pending=[m.name for m in migrations() if m.number not in done],
        postgresql=await conn.fetchval("show server_version"),
    )


async def has_schema(conn: Connection) -> bool:
    """Return True if the schema exists, even if it is empty."""
    return bool(await conn.fetchval(SQL["has_schema"]))


async def _check_version(conn: Connection) -> None:
    version = conn.get_server_version()
    if version.major < MIN_POSTGRESQL_VERSION:
        raise ConfigError(
            f"PostgreSQL {version.major} is too old; Duly needs {MIN_POSTGRESQL_VERSION} or newer."
        )
    encoding = await conn.fetchval("show server_encoding")
    if encoding != "UTF8":
        raise ConfigError(
            f"The database has the encoding {encoding}. Create it with encoding 'UTF8'."
        )


async def _applied(conn: Connection) -> set[int]:
    rows: list[asyncpg.Record] = await conn.fetch(SQL["applied"])
    known = {migration.number: migration for migration in migrations()}
    for row in rows:
        if row["number"] not in known:
            if row["serves"] is not None and row["serves"] <= max(known):
                continue
            raise ConfigError(
                f"The database is newer than this version of Duly (migration {row['name']}); "
                "install the version that migrated it, or a later one."
            )
        if known[row["number"]].checksum != row["checksum"]:
            raise ConfigError(
                f"Migration {row['name']} is not the one that was applied to this database: it "
                "was made by another build of Duly. Use that one, or begin with a new database "
                "(with 'duly up': another --data folder)."
            )
    return {row["number"] for row in rows}
