"""Unpacks the previous version of Duly from the git history, and fakes a next one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCHEMA = "src/duly/store/migrations/0001_schema.sql"
"""Until the first release, which is named here instead, the version before this one is the
oldest that has the same first step of the schema: the commit that changed it last."""
LATER_STEP = """-- serves: 0001

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
"""What a migration may do to those who are still running: add, and nothing else."""
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
"""Makes a join token for any number of nodes."""


def unpack(folder: Path) -> Path:
    """Return where the code of the previous version is; skips when history does not have it."""
    commit = _git("log", "-1", "--format=%H", "--", SCHEMA).decode().strip()
    if not commit or _git("diff", "HEAD", "--name-only", "--", SCHEMA):
        pytest.skip("the history of the repository is not here, or does not have this schema yet")
    _make(folder)
    subprocess.run(["tar", "-x", "-C", folder], input=_git("archive", commit, "src"), check=True)
    return _checked(folder / "src")


def next_version(folder: Path) -> Path:
    """Return where our own code is with a later step of the schema."""
    _make(folder)
    source = folder / "src"
    shutil.copytree(REPOSITORY / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    later = len(list((source / "duly/store/migrations").glob("*.sql"))) + 1
    (source / f"duly/store/migrations/{later:04}_later.sql").write_text(LATER_STEP)
    return _checked(source)


def prepare(source: Path, folder: Path, dsn: str) -> tuple[str, str]:
    """Let the previous version set a database up; return an administrator's key and a token."""
    (folder / "dsn").touch(mode=0o600)
    (folder / "dsn").write_text(dsn)
    key = folder / "admin.key"
    run(source, PROGRAM, "db", "init", "--database-file", folder / "dsn", "--admin-key-file", key)
    return key.read_text().strip(), run(source, TOKEN, folder / "dsn")


def run(source: Path, program: str, *arguments: str | Path) -> str:
    """Run a program with the code in `source`; return what it wrote."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _git(*arguments: str) -> bytes:
    """Return what git says; nothing where there is no history."""
    command = ["git", "-C", REPOSITORY, *arguments]
    return subprocess.run(command, capture_output=True, check=False).stdout


def _make(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)


def _checked(source: Path) -> Path:
    """Return `source`, if it is what is imported from there."""
    assert run(source, "import duly; print(duly.__file__)").startswith(str(source))
    return source
