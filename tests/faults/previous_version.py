"""Unpacks the previous version of Duly from the git history, and fakes a next one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCHEMA = "src/duly/store/migrations/0001_schema.sql"
"""Until the first release, the previous version is the oldest commit with the same first migration:
the commit that changed it last."""
LATER_MIGRATION = """-- serves: 0001

create table later (id bigint primary key, tenant_id int not null);
alter table tasks add column later text;
alter table live add column later int not null default 0;
alter table nodes add column later jsonb not null default '{}';
create index live_later_step on live (later) where later > 0;

create function later(p_task bigint) returns int
    language sql stable
    as 'select later from duly.live where id = p_task';

call isolate_tenants('later');
"""
"""What a migration may do while the previous version still runs: only additions."""
PROGRAM = "import sys; from duly.cli.main import main; sys.argv[0] = 'duly'; main()"
TOKEN = """
import asyncio, datetime, pathlib, sys
from duly.store.accounts import tenants
from duly.store.database import Database
from duly.store.fleet import nodes

async def make_token(dsn):
    token = tenants.generate_key("dulyjoin")
    async with await Database.connect(dsn) as database, database.connection() as conn:
        lasts = datetime.timedelta(hours=2)
        await nodes.add_token(conn, tenants.digest(token), lasts=lasts, uses=None)
    print(token)

asyncio.run(make_token(pathlib.Path(sys.argv[1]).read_text()))
"""
"""Creates a join token for any number of nodes."""


def unpack(folder: Path) -> Path:
    """Return the folder with the code of the previous version; skips the test without history."""
    commit = _git("log", "-1", "--format=%H", "--", SCHEMA).decode().strip()
    if not commit or _git("diff", "HEAD", "--name-only", "--", SCHEMA):
        pytest.skip("no git history, or the schema has uncommitted changes")
    _create_folder(folder)
    subprocess.run(["tar", "-x", "-C", folder], input=_git("archive", commit, "src"), check=True)
    return _checked(folder / "src")


def next_version(folder: Path) -> Path:
    """Return the folder with our own code and one more migration."""
    _create_folder(folder)
    source = folder / "src"
    shutil.copytree(REPOSITORY / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    number = len(list((source / "duly/store/migrations").glob("*.sql"))) + 1
    (source / f"duly/store/migrations/{number:04}_later.sql").write_text(LATER_MIGRATION)
    return _checked(source)


def prepare(source: Path, folder: Path, dsn: str) -> tuple[str, str]:
    """Initialise a database with the previous version; return an admin key and a join token."""
    (folder / "dsn").touch(mode=0o600)
    (folder / "dsn").write_text(dsn)
    key = folder / "admin.key"
    run(source, PROGRAM, "db", "init", "--database-file", folder / "dsn", "--admin-key-file", key)
    return key.read_text().strip(), run(source, TOKEN, folder / "dsn")


def run(source: Path, program: str, *arguments: str | Path) -> str:
    """Run a program with the code in `source`; return its output."""
    completed = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return completed.stdout.strip()


def _git(*arguments: str) -> bytes:
    """Return the output of git; empty without a repository."""
    command = ["git", "-C", REPOSITORY, *arguments]
    return subprocess.run(command, capture_output=True, check=False).stdout


def _create_folder(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)


def _checked(source: Path) -> Path:
    """Return `source` after a check that it is what processes import."""
    assert run(source, "import duly; print(duly.__file__)").startswith(str(source))
    return source
