"""What a database needs before a server can use it: the schema, and the first keys."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from duly.errors import ConfigError
from duly.private_file import write_private
from duly.store import audit_log, migrate, nodes, request_role, tenants
from duly.store.database import Connection, Database
from duly.store.migrate import MigrationStatus

TOKEN_LASTS = timedelta(hours=1)


def find_dsn(dsn: str | None, file: Path | None, environment: Mapping[str, str]) -> str | None:
    """Return the DSN from the flag, the file or DULY_DATABASE; the last two hide its password."""
    if dsn and file:
        raise ConfigError("Give --database or --database-file, not both.")
    if file:
        try:
            dsn = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"Cannot read the DSN from {file}: {error}.") from error
        if not dsn:
            raise ConfigError(f"{file} is empty; it should hold a DSN: postgresql://…")
    return dsn or environment.get("DULY_DATABASE") or None


async def status(dsn: str) -> MigrationStatus:
    """Say how far the database is, and change nothing."""
    async with _connection(dsn) as conn:
        return await migrate.status(conn)


async def bring_up_to_date(dsn: str, role: str = request_role.ROLE) -> list[str]:
    """Apply the migrations that are missing, and return their names.

    The role of requests gets what it needs, if there is one or it can be made.
    """
    if role:
        request_role.check_name(role)
    async with _connection(dsn) as conn:
        return await migrate.migrate(conn, role)


async def check_request_role(dsn: str, role: str) -> None:
    """Raise ConfigError, with what to do, when requests cannot take on the role meant for them."""
    if not role:
        return
    request_role.check_name(role)
    async with _connection(dsn) as conn:
        standing = await request_role.look(conn, role)
    if standing.is_ready:
        return
    missing = request_role.remedy(standing, role)
    run = "\n".join(f"    {statement}" for statement in missing)
    first = f"Let an administrator of the database run\n{run}\nand then" if missing else "Run"
    raise ConfigError(
        f"Requests cannot take on the role {role}, which keeps the tenants apart. {first} "
        "`duly db migrate`. To go without it, set database.request_role to nothing."
    )


async def ensure_admin_key(dsn: str, file: Path) -> str:
    """Return the administrator's key that `file` holds; make one if there is none that works."""
    async with _connection(dsn) as conn:
        key = _read_key(file)
        if key and await tenants.by_key(conn, key) is not None:
            return key
        key = await _make_admin_key(conn)
        try:
            write_private(file, key + "\n")
        except OSError as error:
            raise ConfigError(f"Cannot write the administrator's key: {error}.") from error
        return key


async def first_admin_key(dsn: str) -> str | None:
    """Make an administrator's key for a database that has none; None if there is one already."""
    async with _connection(dsn) as conn:
        return None if await tenants.has_admin_key(conn) else await _make_admin_key(conn)


async def _make_admin_key(conn: Connection) -> str:
    """Make an administrator's key, and note it: whoever reaches the database can do that."""
    async with conn.transaction():
        key = await tenants.create_admin_key(conn)
        made = await tenants.by_key(conn, key)
        await audit_log.note(
            conn,
            actor="database",
            action="key.create",
            target=key[: tenants.PREFIX],
            tenant_id=None if made is None else made.tenant_id,
            details={"scopes": [] if made is None else sorted(made.scopes)},
        )
    return key


async def create_join_token(dsn: str) -> str:
    """Make a token that lets one agent join as a node, soon."""
    token = tenants.generate_key("join")
    async with _connection(dsn) as conn:
        await nodes.add_token(conn, tenants.digest(token), lasts=TOKEN_LASTS, uses=1)
    return token


def _read_key(file: Path) -> str:
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the administrator's key from {file}: {error}.") from error


@asynccontextmanager
async def _connection(dsn: str) -> AsyncIterator[Connection]:
    async with await Database.connect(dsn) as database, database.connection() as conn:
        yield conn
