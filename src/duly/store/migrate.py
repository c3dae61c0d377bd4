"""Brings a database to the schema that this version of Duly speaks.

Migrations go forward only, are numbered without gaps, run under an advisory lock,
and are recorded with a checksum: a file that changed after it was applied is an
error, because then nobody knows what the database looks like.

Servers of the version before go on while the database is migrated under them. A step
says with `-- serves: NNNN` which servers it leaves working: those that know the steps
up to that one. They may be started again, too; without that line only newer ones may.
"""

import asyncio
import hashlib
import re
from importlib import resources

import asyncpg
import msgspec

from duly.errors import ConfigError, Unavailable
from duly.store import request_role
from duly.store.database import Connection, load_statements

SQL = load_statements("migrate.sql")
TRIES = 5
"""How often a step is tried that comes into the way of others, or they into its."""
PAUSE = 0.5
LOCK = 0x64756C79
"""The advisory lock of migrations: "duly" in ASCII."""
OLDEST_POSTGRESQL = 15
SERVES = re.compile(r"^-- serves: (\d{4})$", re.MULTILINE)


class Migration(msgspec.Struct, frozen=True):
    """One numbered step of the schema."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Return what tells whether the file is still the one that was applied."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def serves(self) -> int:
        """Return the oldest step whose servers work on with this one."""
        found = SERVES.search(self.text)
        return int(found[1]) if found else self.number


class MigrationStatus(msgspec.Struct, frozen=True):
    """How far a database is."""

    applied: list[str]
    pending: list[str]
    postgresql: str


def migrations() -> list[Migration]:
    """Return all migrations in order; raises ConfigError when a number is missing."""
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
    """Apply what is missing, each step in a transaction; return the names of what was applied.

    `role` is the one that requests take on, none if it is empty. It is granted what it needs
    whatever was missing: it may have been made since.
    """
    await _check_version(conn)
    await conn.execute(SQL["lock"], LOCK)
    try:
        await conn.execute(SQL["prepare"])
        done = await _applied(conn)
        fresh = [migration for migration in migrations() if migration.number not in done]
        for migration in fresh:
            await _apply(conn, migration)
        if role:
            await request_role.establish(conn, role)
        return [migration.name for migration in fresh]
    finally:
        await conn.execute(SQL["unlock"], LOCK)


async def _apply(conn: Connection, migration: Migration) -> None:
    """Apply a step, again if others who work meanwhile were in its way: nothing of it is left."""
    for tries in range(TRIES, 0, -1):
        try:
            async with conn.transaction():
                await conn.execute(SQL["be_brief"])
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
        await asyncio.sleep(PAUSE)


async def status(conn: Connection) -> MigrationStatus:
    """Say what is applied and what is pending, and change nothing."""
    await _check_version(conn)
    done = await _applied(conn) if await conn.fetchval(SQL["exists"]) else set()
    return MigrationStatus(
        applied=[m.name for m in migrations() if m.number in done],
        pending=[m.name for m in migrations() if m.number not in done],
        postgresql=await conn.fetchval("show server_version"),
    )


async def _check_version(conn: Connection) -> None:
    version = conn.get_server_version()
    if version.major < OLDEST_POSTGRESQL:
        raise ConfigError(
            f"PostgreSQL {version.major} is too old; Duly needs {OLDEST_POSTGRESQL} or newer."
        )
    encoding = await conn.fetchval("show server_encoding")
    if encoding != "UTF8":
        raise ConfigError(
            f"The database's encoding is {encoding}; create it with `encoding 'UTF8'`."
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
                "(with `duly up`: another --data folder)."
            )
    return {row["number"] for row in rows}
