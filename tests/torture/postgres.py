"""Two PostgreSQL servers, the second a synchronous standby of the first.

They run on the hosts db1 and db2, and swap roles at a failover. Clients in the network connect with
`dsn`, the runner outside of it through a unix socket with `local_dsn`.
"""

import asyncio
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import asyncpg

from duly.store.embedded import postmaster
from duly.store.embedded.programs import bundled_programs
from duly.store.embedded.system_user import allow_traversal, user_for
from tests.torture import clocks
from tests.torture.disks import fill, free
from tests.torture.network import Network
from tests.torture.processes import Program, until
from tests.torture.proxy import Behaviour
from tests.torture.proxy_redirect import ProxyRedirect

USER = DATABASE = "duly"
PORT = 5432
DISK_MB = 1500
"""The size of its own disk, which can be filled without harm to the machine."""
SETTINGS = {
    "port": str(PORT),
    "max_connections": "100",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "wal_keep_size": "128MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",
    # A lost peer is detected as fast as a lost node.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "wal_sender_timeout": "5s",
    "wal_receiver_timeout": "5s",
    "wal_retrieve_retry_interval": "500ms",
}


class Instance:
    """One PostgreSQL on one host."""

    def __init__(self, network: Network, name: str, folder: Path, password: str) -> None:
        self.host = network.host(name)
        self.name = name
        self._folder = folder / name
        network.disk(name, self._folder, DISK_MB)
        self.data = self._folder / "data"
        self.user = user_for(self.data)
        self._sockets = self._folder / "sockets"
        self._sockets.mkdir(mode=0o755)
        for path in (self._folder, self._sockets):
            os.chown(path, self.user.uid, self.user.gid)
        allow_traversal(self.user, self._folder)
        self._password = password
        self._programs = bundled_programs()
        allow_traversal(self.user, self._programs)
        self._log = folder / f"{name}.log"
        self._program: Program | None = None
        self.clock = clocks.Clock(folder / f"{name}.clock")
        self.redirect = ProxyRedirect(network, self.host, PORT, folder)

    @property
    def dsn(self) -> str:
        """Return the DSN for clients in the network."""
        return f"postgresql://{USER}:{self._password}@{self.host.address}:{PORT}/{DATABASE}"

    @property
    def local_dsn(self) -> str:
        """Return the DSN for processes outside the network."""
        return self._local(DATABASE)

    def is_running(self) -> bool:
        return self._program is not None and self._program.is_running()

    def create(self) -> None:
        """Initialise an empty cluster."""
        password_file = self._folder / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self._password + "\n")
        os.chown(password_file, self.user.uid, self.user.gid)
        self.run("initdb", f"--pgdata={self.data}", f"--pwfile={password_file}",
                 f"--username={USER}", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C",
                 "--data-checksums", "--no-sync")  # fmt: skip
        password_file.unlink()
        rules = "host all all 10.77.0.0/16 scram-sha-256\n"
        rules += "host replication all 10.77.0.0/16 scram-sha-256\n"
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write(rules)

    def copy_from(self, other: "Instance") -> None:
        """Replace the data by a base backup of `other`, as its standby."""
        shutil.rmtree(self.data, ignore_errors=True)
        self.run("pg_basebackup", f"--host={other.host.address}", f"--port={PORT}",
                 f"--username={USER}", f"--pgdata={self.data}", "--wal-method=stream",
                 "--checkpoint=fast", "--no-sync")  # fmt: skip
        source = (
            f"host={other.host.address} port={PORT} user={USER} password={self._password}"
            f" application_name={self.name} connect_timeout=3"
            " keepalives_idle=3 keepalives_interval=1 keepalives_count=3"
        )
        settings = self.data / "postgresql.auto.conf"
        settings.write_text(f"primary_conninfo = '{source}'\n")
        (self.data / "standby.signal").touch()
        os.chown(self.data / "standby.signal", self.user.uid, self.user.gid)

    def start(self) -> None:
        """Start PostgreSQL, and return when it accepts connections."""
        postmaster.kill_leftovers(self.data)
        (self.data / postmaster.PID_FILE).unlink(missing_ok=True)
        settings = {
            **SETTINGS,
            "listen_addresses": self.host.address,
            "unix_socket_directories": str(self._sockets),
        }
        options = [
            argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")
        ]
        args = [str(self._programs / "postgres"), "-D", str(self.data), *options]
        program = self.host.spawn(self.clock.wrap(args), log=self._log, user=self.user)
        self._program = program
        until(lambda: self._accepts(program), f"{self.name} to accept connections", 60)

    def kill(self) -> None:
        """Kill PostgreSQL; acknowledged commits are on its disk."""
        if self._program is not None and self._program.is_running():
            self._program.kill()
        postmaster.kill_leftovers(self.data)

    def stop(self) -> None:
        """Shut PostgreSQL down gracefully."""
        if self._program is not None and self._program.is_running():
            self._program.send(signal.SIGINT)
            self._program.process.wait(60)

    def run(self, program: str, *args: str) -> str:
        """Run a program of PostgreSQL on its host."""
        path = str(self._programs / program)
        return self.host.run([path, *args], env={"PGPASSWORD": self._password}, user=self.user)

    def query(
        self, statement: str, *args: Any, database: str = DATABASE, seconds: float = 60
    ) -> list[asyncpg.Record]:
        """Run a statement as the superuser, from outside the network."""

        async def fetch() -> list[asyncpg.Record]:
            conn = await asyncpg.connect(self._local(database), timeout=seconds)
            try:
                return await conn.fetch(statement, *args, timeout=seconds)
            finally:
                conn.terminate()

        return asyncio.run(fetch())

    def fill_disk(self) -> None:
        """Fill its disk."""
        fill(self._folder)

    def free_disk(self) -> None:
        """Free its disk."""
        free(self._folder)

    def _local(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password}@/{database}?host={self._sockets}&port={PORT}"

    def _accepts(self, program: Program) -> bool:
        if not program.is_running():
            raise AssertionError(f"{self.name} ended:\n{self._log.read_text()[-3000:]}")
        pid_file = postmaster.read_pid_file(self.data)
        return pid_file is not None and pid_file.status in ("ready", "standby")


class PostgresPair:
    """A primary and its synchronous standby, initially on db1 and db2."""

    def __init__(self, network: Network, folder: Path) -> None:
        self._network = network
        password = secrets.token_hex(16)
        self._password = password
        self.primary, self.standby = (
            Instance(network, name, folder, password) for name in ("db1", "db2")
        )

    def __enter__(self) -> Self:
        self.primary.create()
        self.primary.start()
        self.primary.query(f"create database {DATABASE}", database="postgres")
        self.rebuild_standby()
        return self

    def __exit__(self, *error: object) -> None:
        for server in (self.standby, self.primary):
            server.kill()

    @property
    def dsn(self) -> str:
        """Return the DSN with which clients in the network find the primary."""
        servers = sorted((self.primary, self.standby), key=lambda server: server.name)
        hosts = ",".join(f"{server.host.address}:{PORT}" for server in servers)
        return (
            f"postgresql://{USER}:{self._password}@{hosts}/{DATABASE}"
            "?target_session_attrs=read-write"
        )

    @property
    def local_dsn(self) -> str:
        """Return the DSN of the primary for processes outside the network."""
        return self.primary.local_dsn

    def named(self, name: str) -> Instance:
        return next(server for server in (self.primary, self.standby) if server.name == name)

    def kill(self, name: str) -> None:
        self.named(name).kill()

    def start(self, name: str) -> None:
        self.named(name).start()

    def promote(self) -> None:
        """Promote the standby, which does not wait for a standby until it has one.

        The caller must have isolated the old primary, to prevent a split brain.
        """
        self.standby.query("select pg_promote(true, 60)")
        self.primary, self.standby = self.standby, self.primary

    def rebuild_standby(self) -> None:
        """Rebuild the standby on the other host from the primary."""
        self.standby.kill()
        self.standby.copy_from(self.primary)
        self.standby.start()
        self.await_standby()
        self.primary.query(f"alter system set synchronous_standby_names = '{self.standby.name}'")
        self.primary.query("select pg_reload_conf()")
        until(lambda: self._sync_state() == "sync", "the standby to be synchronous")
        # Commits wait once the checkpointer has read the setting, which a checkpoint ensures.
        self.primary.query("checkpoint")

    def await_standby(self, seconds: float = 60) -> None:
        """Wait until the standby streams from the primary."""
        until(lambda: self._sync_state() is not None, "the standby to stream", seconds)

    def revive(self) -> None:
        """Start the servers that have ended, and wait until the standby streams again."""
        for server in (self.primary, self.standby):
            if not server.is_running():
                server.start()
        until(self._is_responding, "the primary to answer", 60)
        self.await_standby()

    def cancel_sync_waits(self) -> int:
        """Cancel every commit that waits for the standby; return their number."""
        return len(
            self.primary.query(
                "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
            )
        )

    def lock_table(self, name: str, seconds: float) -> threading.Thread:
        """Lock a table in access exclusive mode; the thread ends with the lock."""

        async def hold() -> None:
            conn = await asyncpg.connect(self.primary.local_dsn)
            try:
                async with conn.transaction():
                    await conn.execute(f"lock table duly.{name} in access exclusive mode")
                    await asyncio.sleep(seconds)
            finally:
                conn.terminate()

        thread = threading.Thread(target=lambda: asyncio.run(hold()), daemon=True)
        thread.start()
        return thread

    def fill_disk(self) -> None:
        self.primary.fill_disk()

    def free_disk(self) -> None:
        for server in (self.primary, self.standby):
            server.free_disk()

    def redirect(self, sources: Sequence[str], behaviour: Behaviour) -> None:
        """Redirect the connections of the hosts `sources` through proxies with `behaviour`."""
        for server in (self.primary, self.standby):
            server.redirect.begin(sources, behaviour)

    def set_proxy_behaviour(self, behaviour: Behaviour) -> None:
        """Change the behaviour of the proxies."""
        for server in (self.primary, self.standby):
            server.redirect.set_behaviour(behaviour)

    def end_redirect(self) -> None:
        for server in (self.primary, self.standby):
            server.redirect.end()

    def clock(self, offset: str) -> None:
        """Set the clock offset of both servers, such as `+60s` or `+0`."""
        for server in (self.primary, self.standby):
            server.clock.set(offset)

    def _is_responding(self) -> bool:
        try:
            return bool(self.primary.query("select 1", seconds=5))
        except (asyncpg.PostgresError, OSError, TimeoutError):
            return False

    def _sync_state(self) -> str | None:
        rows: Sequence[asyncpg.Record] = self.primary.query(
            "select sync_state from pg_stat_replication"
            " where application_name = $1 and state = 'streaming'",
            self.standby.name,
        )
        return rows[0][0] if rows else None
