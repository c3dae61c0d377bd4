"""Prepares a database for servers: migrations, the request role and the first keys."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from duly.errors import ConfigError
from duly.model.tenant import Credential, Scope
from duly.model.wording import describe_unreadable
from duly.private_file import write_private
from duly.store import migrate
from duly.store.accounts import audit_log, tenants
from duly.store.connections import request_role
from duly.store.database import Connection, Database
from duly.store.fleet import nodes
from duly.store.migrate import MigrationStatus

log = logging.getLogger(__name__)
JOIN_TOKEN_LIFETIME = timedelta(hours=1)


def find_dsn(dsn: str | None, file: Path | None, environment: Mapping[str, str]) -> str | None:
    """Return the DSN from the flag, the file or DULY_DATABASE; the last two keep it off argv."""
    if dsn and file:
        raise ConfigError("Give only one of --database and --database-file.")
    if file:
        try:
            dsn = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"Cannot read the DSN from {file}: {describe_unreadable(error)}."
            ) from error
        if not dsn:
            raise ConfigError(
                f"{file} is empty. It must contain a DSN, such as postgresql://host/duly."
            )
    return dsn or environment.get("DULY_DATABASE") or None


async def status(dsn: str) -> MigrationStatus:
    """Return the applied and pending migrations."""
    async with connection(dsn) as conn:
        return await migrate.status(conn)


async def bring_up_to_date(dsn: str, role: str = request_role.ROLE) -> list[str]:
    """Apply the pending migrations and return their names.

    Grants the request role its privileges, if the role exists or can be created.
    """
    if role:
        request_role.check_name(role)
    async with connection(dsn) as conn:
        return await migrate.migrate(conn, role)


async def check_request_role(dsn: str, role: str) -> None:
    """Raise ConfigError with instructions if requests cannot use their role."""
    if not role:
        return
    request_role.check_name(role)
    async with connection(dsn) as conn:
        role_status = await request_role.read_status(conn, role)
    if role_status.is_ready:
        return
    missing = request_role.missing_grants(role_status, role)
    statements = "\n".join(f"    {statement}" for statement in missing)
    instruction = (
        f"As a database administrator, run\n{statements}\nand then run" if missing else "Run"
    )
    raise ConfigError(
        f"Requests cannot use the role {role}, which isolates the tenants. {instruction} 'duly db "
        "migrate'. To run without it, set database.request_role to an empty string."
    )


async def ensure_admin_key(dsn: str, file: Path, *, replace_stale: bool = False) -> str:
    """Return the administrator's key in `file`; create one if the file is missing or empty.

    Raises ConfigError for a file with anything else, unless `replace_stale`, which is for a file
    that nobody but Duly writes to.
    """
    async with connection(dsn) as conn:
        content = _read_key(file)
        credential = await tenants.by_key(conn, content) if content else None
        if credential is not None and Scope.ADMIN in credential.scopes:
            return content
        if content and not replace_stale:
            raise ConfigError(_no_admin_key(file, credential))
        # Written before the commit: a key that is not in the file must not be valid.
        async with conn.transaction():
            key = await _create_admin_key(conn)
            _write_key(file, key)
        if content:
            log.warning("replaced a key that is not, or no longer, an administrator's: %s", file)
        return key


def _no_admin_key(file: Path, credential: Credential | None) -> str:
    if credential is None:
        problem = f"{file} exists and has no valid key of this database"
    else:
        problem = f"{file} has the key of {credential.actor}, which is not an administrator's"
    return (
        f"--admin-key-file: {problem}. It is left as it is, and no key was created. Choose another "
        "file, or remove this one if nobody needs it."
    )


def _write_key(file: Path, key: str) -> None:
    try:
        write_private(file, key + "\n")
    except OSError as error:
        raise ConfigError(
            f"Cannot write the administrator's key to {file}: {error.strerror}. No key was created."
        ) from error


async def first_admin_key(dsn: str) -> str | None:
    """Create an administrator's key if the database has none; return None if it has."""
    async with connection(dsn) as conn:
        return None if await tenants.has_admin_key(conn) else await _create_admin_key(conn)


async def _create_admin_key(conn: Connection) -> str:
    """Create an administrator's key and audit it: anyone with database access can do this."""
    async with conn.transaction():
        key = await tenants.create_admin_key(conn)
        created = await tenants.by_key(conn, key)
        await audit_log.note(
            conn,
            actor="database",
            action="key.create",
            target=key[: tenants.KEY_PREFIX_LENGTH],
            tenant_id=None if created is None else created.tenant_id,
            details={"scopes": [] if created is None else sorted(created.scopes)},
        )
    return key


async def create_join_token(dsn: str) -> str:
    """Create a join token for one agent, valid for an hour."""
    token = tenants.generate_key("join")
    async with connection(dsn) as conn:
        await nodes.add_token(conn, tenants.digest(token), lasts=JOIN_TOKEN_LIFETIME, uses=1)
    return token


def _read_key(file: Path) -> str:
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"Cannot read the administrator's key from {file}: {describe_unreadable(error)}."
        ) from error


@asynccontextmanager
async def connection(dsn: str) -> AsyncIterator[Connection]:
    """Open a connection of its own, which bypasses a pooler."""
    async with await Database.connect(dsn) as database, database.connection() as conn:
        yield conn
