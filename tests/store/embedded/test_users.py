"""Whose PostgreSQL is: its user on the machine, and the roles inside, also of earlier versions."""

import asyncio
import os
import pwd
import secrets
import subprocess
from pathlib import Path

import asyncpg
import pytest

from duly.private_file import write_private
from duly.store import migrate
from duly.store.connections import request_role
from duly.store.embedded import embedded_postgres
from duly.store.embedded.embedded_postgres import EmbeddedPostgres
from duly.store.embedded.roles import CARRY_OVER, RENAME, RENAMING_ROLE, Roles
from duly.store.embedded.system_user import allow_traversal, user_for
from tests.store.embedded.clusters import NOBODY, as_root, ask, mode, server_pid


@as_root
def test_root_runs_it_as_a_user_that_may_pass_and_nobody_else_may(tmp_path):
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    postgres = EmbeddedPostgres(private / "data")
    try:
        assert ask(postgres.start(), "select 1") == 1
        status = Path(f"/proc/{server_pid(private / 'data')}").stat()
        assert status.st_uid == pwd.getpwnam("duly").pw_uid
        for stranger in (NOBODY, 12345):
            entered = subprocess.run(
                ["/bin/sh", "-c", f"cd '{private}'"], user=stranger, group=stranger
            )
            assert entered.returncode != 0
        listed = subprocess.run(["/bin/ls", str(private)], user=status.st_uid, capture_output=True)
        assert listed.returncode != 0, "to pass through is not to read"
    finally:
        postgres.stop()


@as_root
def test_root_goes_on_with_the_cluster_of_an_ordinary_user(tmp_path):
    owned = tmp_path / "owned"
    owned.mkdir()
    postgres = EmbeddedPostgres(owned)
    postgres.start()
    postgres.stop()
    for path in [*(owned / "postgres").rglob("*"), owned / "postgres", owned / "postgres.socket"]:
        os.lchown(path, NOBODY, NOBODY)
    try:
        assert ask(postgres.start(), "select 1") == 1
        assert Path(f"/proc/{server_pid(owned)}").stat().st_uid == NOBODY
    finally:
        postgres.stop()


class Unprepared:
    """What stands for the roles of a cluster in which nothing is arranged."""

    def prepare(self, sockets):
        return subprocess.CompletedProcess([], 0, "")


@pytest.fixture
def earlier(folder, monkeypatch):
    """A running cluster as an earlier version left it: its superuser owns everything."""
    made = EmbeddedPostgres(folder)
    folder.mkdir()
    folder.chmod(0o755)
    user = user_for(folder / "postgres")
    allow_traversal(user, folder)
    password = secrets.token_hex(32)
    write_private(folder / "postgres.password", password + "\n")
    with monkeypatch.context() as patch:
        patch.setattr(embedded_postgres, "SUPERUSER", "duly")
        made._create(user, password)
    dsn = embedded_postgres._dsn(made._launch(user, Unprepared()), password)
    ask(dsn.replace("/duly?", "/postgres?"), "create database duly")

    async def fill():
        connection = await asyncpg.connect(dsn)
        await migrate.migrate(connection, role="")
        await connection.execute("insert into duly.tenants (name, plan) values ('t', 'unlimited')")
        await connection.close()

    asyncio.run(fill())
    assert ask(dsn, "select rolsuper from pg_roles where rolname = current_user")
    return made


FOREIGN = """
select array(select c.relname::text from pg_class c
              where c.relnamespace = 'duly'::regnamespace and c.relowner <> 'duly'::regrole
              union all
             select p.proname::text from pg_proc p
              where p.pronamespace = 'duly'::regnamespace and p.proowner <> 'duly'::regrole
              union all
             select t.typname::text from pg_type t
              where t.typnamespace = 'duly'::regnamespace and t.typowner <> 'duly'::regrole)
"""


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_cluster_of_an_earlier_version_is_carried_over(folder, earlier, steps):
    """Also by the start after one that was killed on the way."""
    passwords = earlier._passwords()
    roles = Roles(earlier._programs, folder / "postgres", passwords)
    begun = [("duly", passwords.owner, CARRY_OVER), (RENAMING_ROLE, passwords.superuser, RENAME)]
    for step in begun[:steps]:
        assert roles._run(earlier._socket_path(), *step).returncode == 0
    dsn = EmbeddedPostgres(folder).start()
    assert_plain(dsn)
    assert ask(dsn, "select count(*) from duly.tenants where name = 't'") == 1
    assert ask(dsn, FOREIGN) == []

    async def go_on():
        connection = await asyncpg.connect(dsn)
        try:
            await migrate.migrate(connection)
            return await request_role.read_status(connection, request_role.ROLE)
        finally:
            await connection.close()

    assert asyncio.run(go_on()).is_ready
    EmbeddedPostgres(folder).stop()
    assert_plain(EmbeddedPostgres(folder).start())


def assert_plain(dsn):
    """Make sure that the role is no superuser, and that no superuser is left but one."""
    assert ask(dsn, "select current_user::text") == "duly"
    assert ask(dsn, "select array_agg(rolname::text) from pg_roles where rolsuper") == ["postgres"]
    assert not ask(
        dsn,
        "select rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls "
        "from pg_roles where rolname = current_user",
    )
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        ask(dsn, "alter system set work_mem = '1GB'")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        ask(dsn, "select pg_read_file('/etc/passwd')")


def test_duly_is_not_the_superuser_and_does_not_know_its_password(folder):
    dsn = EmbeddedPostgres(folder).start()
    assert_plain(dsn)
    assert mode(folder / "postgres.superuser.password") == 0o600
    owner, superuser = (
        (folder / name).read_text() for name in ("postgres.password", "postgres.superuser.password")
    )
    assert owner != superuser
    with pytest.raises(asyncpg.InvalidPasswordError):
        ask(dsn.replace("//duly:", "//postgres:"), "select 1")
