"""PostgreSQL in a folder: private, durable, and never in the way of the next start."""

import asyncio
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import asyncpg
import pytest

from duly.errors import ConfigError
from duly.private_file import write_private
from duly.store import embedded, migrate, postmaster, request_role
from duly.store.embedded import EmbeddedPostgres
from duly.store.embedded_roles import CARRY_OVER, RENAME, RENAMER, Roles
from duly.store.system_user import let_through, user_for
from tests.conftest import as_superuser

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another user")


def ask(dsn: str, query: str) -> object:
    async def run() -> object:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(run())


@pytest.fixture
def tmp_path():
    """Not pytest's own, which every other run of pytest closes to all but root."""
    folder = Path(tempfile.mkdtemp(prefix="duly-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folder(tmp_path):
    """A folder whose cluster is gone after the test, whatever the test did to it."""
    folder = tmp_path / "data"
    yield folder
    EmbeddedPostgres(folder).stop()


@pytest.fixture
def postgres(folder):
    postgres = EmbeddedPostgres(folder)
    postgres.start()
    yield postgres
    postgres.stop()


def server_pid(folder: Path) -> int:
    pid = postmaster.find_postmaster(folder / "postgres")
    assert pid is not None
    return pid


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize(
    "programs",
    [
        None,
        pytest.param(
            DEBIAN_15,
            marks=pytest.mark.skipif(not DEBIAN_15.exists(), reason="PostgreSQL 15 is not here"),
        ),
    ],
)
def test_a_cluster_is_durable_private_and_kept_over_a_restart(folder, programs):
    postgres = EmbeddedPostgres(folder, programs)
    dsn = postgres.start()
    settings = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "data_checksums": "on",
        "server_encoding": "UTF8",
        "listen_addresses": "",
        "password_encryption": "scram-sha-256",
        "TimeZone": "UTC",
    }
    assert {name: ask(dsn, f"show {name}") for name in settings} == settings
    rules = "select array_agg(distinct auth_method) from pg_hba_file_rules"
    assert ask(as_superuser(dsn), rules) == ["scram-sha-256"]
    assert mode(folder / "postgres.password") == 0o600
    assert mode(folder / "postgres.socket") == 0o700
    assert mode(folder / "postgres.log") == 0o600

    ask(dsn, "create table kept (); ")
    postgres.stop()
    assert postmaster.find_processes(folder / "postgres") == []
    assert ask(postgres.start(), "select to_regclass('kept')") == "kept"
    postgres.stop()


def test_a_running_cluster_is_adopted(postgres, folder):
    pid = server_pid(folder)
    again = EmbeddedPostgres(folder)
    assert ask(again.start(), "select 1") == 1
    assert server_pid(folder) == pid
    again.stop()
    assert postmaster.find_processes(folder / "postgres") == []


def test_the_cluster_survives_the_death_of_its_starter_and_is_adopted(folder):
    start = (
        "import sys; from pathlib import Path; from duly.store.embedded import EmbeddedPostgres\n"
        "postgres = EmbeddedPostgres(Path(sys.argv[1])); postgres.start()\n"
        "print('started', flush=True); sys.stdin.read()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", start, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with starter:
        assert starter.stdout.readline() == b"started\n"
        pid = server_pid(folder)
        # As a terminal would: to the whole group, first Ctrl-C, then the window is closed.
        os.killpg(starter.pid, signal.SIGINT)
        os.killpg(starter.pid, signal.SIGKILL)
    assert ask(EmbeddedPostgres(folder).start(), "select 1") == 1
    assert server_pid(folder) == pid


def test_no_secret_is_in_the_arguments_of_any_process(postgres, folder):
    names = ("postgres.password", "postgres.superuser.password")
    passwords = [(folder / name).read_text().strip() for name in names]
    said = (folder / "postgres.log").read_text()
    for pid in postmaster.find_processes(folder / "postgres"):
        # A session that has just ended may still be found, and be gone when it is looked at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            said += Path(f"/proc/{pid}/cmdline").read_text()
            said += Path(f"/proc/{pid}/environ").read_text()
    assert str(folder) in said
    assert not [password for password in passwords if password in said]


def test_sessions_of_a_killed_server_do_not_block_the_next_one(postgres, folder):
    async def lose_the_server_under_a_busy_session() -> None:
        connection = await asyncpg.connect(postgres.start())
        busy = asyncio.create_task(connection.execute("select pg_sleep(600)"))
        await asyncio.sleep(0)  # lets the statement be sent
        os.kill(server_pid(folder), signal.SIGKILL)
        dsn = await asyncio.to_thread(EmbeddedPostgres(folder).start)
        with pytest.raises((asyncpg.PostgresError, OSError)):
            await busy
        again = await asyncpg.connect(dsn)
        assert await again.fetchval("select 1") == 1
        await again.close()

    asyncio.run(lose_the_server_under_a_busy_session())


def test_a_pid_file_whose_number_belongs_to_another_program_does_not_block(folder):
    postgres = EmbeddedPostgres(folder)
    postgres.start()
    pid = server_pid(folder)
    owner = (folder / "postgres").stat()
    os.kill(pid, signal.SIGKILL)
    postgres.stop()
    other = subprocess.Popen(
        [shutil.which("sleep"), "600"], **({"user": owner.st_uid} if os.geteuid() == 0 else {})
    )
    for lock in ("postgres/postmaster.pid", "postgres.socket/.s.PGSQL.5432.lock"):
        text = (folder / lock).read_text()
        (folder / lock).write_text(text.replace(str(pid), str(other.pid), 1))
    try:
        assert ask(EmbeddedPostgres(folder).start(), "select 1") == 1
        assert other.poll() is None, "a process that is not PostgreSQL's was touched"
    finally:
        other.kill()
        other.wait()


def test_a_frozen_server_is_replaced(postgres, folder, monkeypatch):
    monkeypatch.setattr(embedded, "ADOPTION_PATIENCE", 1.0)
    pid = server_pid(folder)
    for process in postmaster.find_processes(folder / "postgres"):
        os.kill(process, signal.SIGSTOP)
    assert ask(EmbeddedPostgres(folder).start(), "select 1") == 1
    assert server_pid(folder) != pid


def test_a_half_made_cluster_is_thrown_away(folder):
    (folder / "postgres.new-x" / "base").mkdir(parents=True)
    (folder / "postgres.new-x" / "PG_VERSION").write_text("18\n")
    write_private(folder / "postgres.new-x.password", "left over")
    assert ask(EmbeddedPostgres(folder).start(), "select 1") == 1
    assert list(folder.glob("postgres.new*")) == []


def test_an_initdb_that_a_kill_left_at_work_is_not_in_the_way(folder):
    place = folder / "postgres.new-x" / "base"
    place.mkdir(parents=True)
    write = "i=0; while :; do i=$((i + 1)); mkdir -p $0/$((i % 50)); : > $0/$((i % 50))/$i; done"
    with subprocess.Popen(["sh", "-c", write, str(place)], stderr=subprocess.DEVNULL) as orphan:
        try:
            assert ask(EmbeddedPostgres(folder).start(), "select 1") == 1
        finally:
            orphan.kill()


def test_a_cluster_of_another_version_is_left_alone_and_the_way_out_is_told(folder):
    (folder / "postgres").mkdir(parents=True)
    write_private(folder / "postgres.password", "x")
    (folder / "postgres" / "PG_VERSION").write_text("14\n")
    with pytest.raises(ConfigError, match=r"made by PostgreSQL 14.*pg_dump 14.*--data"):
        EmbeddedPostgres(folder).start()
    assert [path.name for path in (folder / "postgres").iterdir()] == ["PG_VERSION"]


def test_a_folder_that_is_no_cluster_is_left_alone(folder):
    (folder / "postgres").mkdir(parents=True)
    write_private(folder / "postgres.password", "x")
    (folder / "postgres" / "mine.txt").write_text("keep")
    with pytest.raises(ConfigError, match="holds no database"):
        EmbeddedPostgres(folder).start()
    assert (folder / "postgres" / "mine.txt").read_text() == "keep"


def test_a_lost_password_is_told_before_anything_is_started(postgres, folder):
    postgres.stop()
    (folder / "postgres.password").unlink()
    with pytest.raises(ConfigError, match=r"postgres\.password is missing"):
        postgres.start()


def test_a_failed_start_shows_the_end_of_the_log(postgres, folder):
    postgres.stop()
    with (folder / "postgres" / "postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")
    with pytest.raises(ConfigError, match="no_such_setting"):
        postgres.start()


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--data"):
        EmbeddedPostgres(tmp_path / "file" / "data").start()


@as_root
def test_a_full_disk_is_told_and_a_later_start_works(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "duly-test", str(folder)])
    if mounted.returncode != 0:
        pytest.skip("this root may not mount")
    try:
        with pytest.raises(ConfigError, match="No space left on device"):
            EmbeddedPostgres(folder).start()
        subprocess.run(["mount", "-o", "remount,size=200m", str(folder)], check=True)
        postgres = EmbeddedPostgres(folder)
        assert ask(postgres.start(), "select 1") == 1
        postgres.stop()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ["a, b 'c' \"d\"", "ü" * 60 + "/" + "x" * 100])
def test_any_folder_name_will_do(tmp_path, name):
    postgres = EmbeddedPostgres(tmp_path / name)
    try:
        assert ask(postgres.start(), "select 1") == 1
    finally:
        postgres.stop()


def test_a_socket_folder_that_another_made_first_is_refused(tmp_path):
    folder = tmp_path / ("x" * 100)
    postgres = EmbeddedPostgres(folder)
    postgres.start()
    sockets = Path(postmaster.read_pid_file(folder / "postgres").socket_folder)
    postgres.stop()
    assert sockets.parent == Path("/tmp") and not sockets.exists()
    sockets.symlink_to(tmp_path)
    try:
        with pytest.raises(ConfigError, match="not a private folder"):
            postgres.start()
    finally:
        sockets.unlink()


def test_a_log_that_grew_too_large_is_cut_while_the_server_runs(postgres, folder, monkeypatch):
    monkeypatch.setattr(embedded, "LOG_LIMIT", 100)
    before = (folder / "postgres.log").read_text()
    postgres.trim_log()
    assert (folder / "postgres.log.1").read_text() == before
    assert (folder / "postgres.log").read_text() == ""
    os.kill(server_pid(folder), signal.SIGHUP)
    postgres.stop()
    after = (folder / "postgres.log").read_text()
    assert "shut down" in after and not after.startswith("\0")


def test_a_log_is_set_aside_through_no_link(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "LOG_LIMIT", 100)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    (tmp_path / "postgres.log").write_text("x" * 200)
    (tmp_path / "postgres.log.1").symlink_to(elsewhere)
    EmbeddedPostgres(tmp_path).trim_log()
    assert elsewhere.read_text() == "kept"
    assert (tmp_path / "postgres.log.1").read_text() == "x" * 200


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
    let_through(user, folder)
    password = secrets.token_hex(32)
    write_private(folder / "postgres.password", password + "\n")
    with monkeypatch.context() as patch:
        patch.setattr(embedded, "SUPERUSER", "duly")
        made._create(user, password)
    dsn = embedded._dsn(made._launch(user, Unprepared()), password)
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
    begun = [("duly", passwords.owner, CARRY_OVER), (RENAMER, passwords.superuser, RENAME)]
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
            return await request_role.look(connection, request_role.ROLE)
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
