"""Dumps a database into a file, and restores it from one, with PostgreSQL's own programs.

The bundled programs are used: pg_dump must be at least as new as the server. A password is passed
in the environment, never as an argument.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from duly.errors import ConfigError
from duly.launch.database import bring_up_to_date, connection
from duly.private_file import sync_folder
from duly.store import migrate
from duly.store.embedded.programs import bundled_programs, tail_of

DUMP_FORMAT = b"PGDMP"
"""The first bytes of a file that pg_dump has written in its custom format."""
UNKNOWN_BEFORE_17 = b"SET transaction_timeout = 0;\n"
"""A statement that pg_restore always writes, and that servers before version 17 reject."""
CREATE_SCHEMA = b"CREATE SCHEMA duly;\n"


async def dump(dsn: str, file: Path) -> None:
    """Write a consistent snapshot of the database into `file`, while servers keep running."""
    async with connection(dsn) as conn:
        if (await migrate.status(conn)).pending:
            raise ConfigError(
                "The database does not have the schema of this version. "
                "Migrate it first with 'duly db migrate'."
            )
    _write(dsn, file)


def _write(dsn: str, file: Path) -> None:
    partial = file.with_name(file.name + ".half")
    arguments = ["--format=custom", "--schema=duly", "--no-owner", "--no-privileges"]
    try:
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600)
        _run("pg_dump", [*arguments, f"--file={partial}"], dsn)
        with partial.open("rb") as output:
            os.fsync(output.fileno())
        partial.rename(file)
        sync_folder(file.absolute().parent)
    except OSError as error:
        raise ConfigError(f"Cannot write {file}: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)


async def restore(dsn: str, file: Path, role: str) -> list[str]:
    """Fill an empty database from `file`, all or nothing.

    Applies the migrations that are newer than the dump, and returns their names. Raises ConfigError
    if the database has a schema of Duly's already.
    """
    _check_format(file)
    async with connection(dsn) as conn:
        if (await migrate.status(conn)).applied:
            raise ConfigError(
                "The database is not empty: it has a schema of Duly's. Create a new database, and "
                "restore into that."
            )
        excluded_lines = {UNKNOWN_BEFORE_17}
        if await migrate.has_schema(conn):
            excluded_lines.add(CREATE_SCHEMA)
    _load(dsn, file, excluded_lines)
    return await bring_up_to_date(dsn, role)


def _check_format(file: Path) -> None:
    try:
        with file.open("rb") as dump_file:
            is_dump = dump_file.read(len(DUMP_FORMAT)) == DUMP_FORMAT
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error.strerror}.") from error
    if not is_dump:
        raise ConfigError(f"{file} was not written by 'duly db dump'.")


def _load(dsn: str, file: Path, excluded_lines: set[bytes]) -> None:
    """Run the dump as a script in one transaction.

    The last line commits. So nothing is committed if the script ends early, whichever process died.
    """
    address, environment = _split(dsn)
    arguments = ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]
    with tempfile.TemporaryFile() as errors:
        with (
            subprocess.Popen(  # noqa: S603 (PostgreSQL's programs, with arguments of our own)
                [_program("pg_restore"), "--no-owner", "--no-privileges", "--file=-", file],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            ) as reader,
            subprocess.Popen(  # noqa: S603 (as above)
                [_program("psql"), *arguments, f"--dbname={address}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
            ) as writer,
        ):
            assert reader.stdout is not None and writer.stdin is not None  # noqa: S101 (pipes)
            try:
                writer.stdin.write(b"begin;\n")
                for line in _script(reader.stdout, excluded_lines):
                    writer.stdin.write(line)
                if reader.wait() == 0:
                    writer.stdin.write(b"analyze;\ncommit;\n")
                writer.stdin.close()
            except BrokenPipeError:
                reader.kill()
        if reader.returncode or writer.returncode:
            errors.seek(0)
            raise ConfigError(
                "Nothing was restored. PostgreSQL says:\n"
                + tail_of(errors.read().decode(errors="replace"))
            )


def _script(lines: Iterator[bytes], excluded_lines: set[bytes]) -> Iterator[bytes]:
    """Yield the lines of a script; `excluded_lines` are removed from the part before the data."""
    for line in lines:
        if line not in excluded_lines:
            yield line
        if line.startswith(b"COPY "):
            break
    yield from lines


def _run(program: str, arguments: list[str], dsn: str) -> None:
    address, environment = _split(dsn)
    completed = subprocess.run(  # noqa: S603 (as above)
        [_program(program), *arguments, f"--dbname={address}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    )
    if completed.returncode != 0:
        raise ConfigError(
            f"{program} failed:\n{tail_of(completed.stderr.decode(errors='replace'))}"
        )


def _program(name: str) -> Path:
    return bundled_programs() / name


def _split(dsn: str) -> tuple[str, dict[str, str]]:
    """Return the DSN without its password, and an environment that has it."""
    parts = urlsplit(dsn)
    user, has_user, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    password = query.pop("password", "") or unquote(password)
    address = parts._replace(netloc=f"{name}{has_user}{host}", query=urlencode(query)).geturl()
    if not parts.netloc:
        # urllib writes no `//` without a host, and libpq demands it.
        address = address.replace(f"{parts.scheme}:", f"{parts.scheme}://", 1)
    inherited = {key: os.environ[key] for key in os.environ if key.startswith("PG")}
    base = {"PATH": os.defpath, "LC_ALL": "C", "PGTARGETSESSIONATTRS": "read-write"}
    secret = {"PGPASSWORD": password} if password else {}
    return address, {**base, **inherited, **secret}
