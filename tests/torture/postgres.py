"""Two PostgreSQL servers, the second a synchronous standby of the first.

They run on hosts of their own, db1 and db2, and change places at a failover. Clients in
the network reach them by `dsn`; the judge, who is in no network, by a unix socket.
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
DISK = 1500
"""Megabytes; on a disk of its own, so that it can be filled without harm to the machine."""
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
    # A lost peer is given up on as soon as a lost node would be.
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
        network.disk(name, self._folder, DISK)
        self.data = self._folder / "data"
        self.user = user_for(self.data)
        self._sockets = self._folder / "sockets"
        self._sockets.mkdir(mode=0o755)
        for place in (self._folder, self._sockets):
            os.chown(place, self.user.uid, self.user.gid)
        allow_traversal(self.user, self._folder)
        self._password = password
        self._programs = bundled_programs()
        allow_traversal(self.user, self._programs)
        self._log = folder / f"{name}.log"
        self._program: Program | None = None
        self.clock = clocks.Clock(folder / f"{name}.clock")
        self.detour = ProxyRedirect(network, self.host, PORT, folder)

    @property
    def dsn(self) -> str:
        """Return how to reach this one in the network."""
        return f"postgresql://{USER}:{self._password}@{self.host.address}:{PORT}/{DATABASE}"

    @property
    def local_dsn(self) -> str:
        """Return how to reach it from outside the network."""
        return self._local(DATABASE)

    def is_running(self) -> bool:
        return self._program is not None and self._program.is_running()

    def create(self) -> None:
        """Make an empty cluster."""
        word = self._folder / "password"
        word.touch(mode=0o600)
        word.write_text(self._password + "\n")
        os.chown(word, self.user.uid, self.user.gid)
        self.run("initdb", f"--pgdata={self.data}", f"--pwfile={word}", f"--username={USER}",
                 "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums",
                 "--no-sync")  # fmt: skip
        word.unlink()
        rules = "host all all 10.77.0.0/16 scram-sha-256\n"
        rules += "host replication all 10.77.0.0/16 scram-sha-256\n"
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write(rules)

    def copy_from(self, other: "Instance") -> None:
        """Become a standby of `other`, with none of what was here before."""
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
        """Start it, and return when it takes connections."""
        postmaster.kill_leftovers(self.data)
        (self.data / postmaster.PID_FILE).unlink(missing_ok=True)
        settings = {
            **SETTINGS,
            "listen_addresses": self.host.address,
            "unix_socket_directories": str(self._sockets),
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        args = [str(self._programs / "postgres"), "-D", str(self.data), *options]
        program = self.host.spawn(self.clock.around(args), log=self._log, user=self.user)
        self._program = program
        until(lambda: self._accepts(program), f"{self.name} to accept connections", 60)

    def kill(self) -> None:
        """End it at once; what has been acknowledged is on its disk."""
        if self._program is not None and self._program.is_running():
            self._program.kill()
        postmaster.kill_leftovers(self.data)

    def stop(self) -> None:
        """Shut it down in an orderly way."""
        if self._program is not None and self._program.is_running():
            self._program.send(signal.SIGINT)
            self._program.process.wait(60)

    def run(self, program: str, *args: str) -> str:
        """Run a program of PostgreSQL's on its host."""
        path = str(self._programs / program)
        return self.host.run([path, *args], env={"PGPASSWORD": self._password}, user=self.user)

    def query(
        self, statement: str, *args: Any, database: str = DATABASE, seconds: float = 60
    ) -> list[asyncpg.Record]:
        """Run a statement as the superuser, from outside the network."""

        async def ask() -> list[asyncpg.Record]:
            conn = await asyncpg.connect(self._local(database), timeout=seconds)
            try:
                return await conn.fetch(statement, *args, timeout=seconds)
            finally:
                conn.terminate()

        return asyncio.run(ask())

    def fill_disk(self) -> None:
        """Leave no room on its disk."""
        fill(self._folder)

    def free_disk(self) -> None:
        """Give the room back."""
        free(self._folder)

    def _local(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password}@/{database}?host={self._sockets}&port={PORT}"

    def _accepts(self, program: Program) -> bool:
        if not program.is_running():
            raise AssertionError(f"{self.name} ended:\n{self._log.read_text()[-3000:]}")
        noted = postmaster.read_pid_file(self.data)
        return noted is not None and noted.status in ("ready", "standby")


class PostgresPair:
    """A primary and its synchronous standby, at db1 and db2 at first."""

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
        for one in (self.standby, self.primary):
            one.kill()

    @property
    def dsn(self) -> str:
        """Return where clients in the network find whichever of the two can be written to."""
        both = sorted((self.primary, self.standby), key=lambda one: one.name)
        hosts = ",".join(f"{one.host.address}:{PORT}" for one in both)
        return (
            f"postgresql://{USER}:{self._password}@{hosts}/{DATABASE}"
            "?target_session_attrs=read-write"
        )

    @property
    def local_dsn(self) -> str:
        """Return how the judge, who is in no network, reaches the primary."""
        return self.primary.local_dsn

    def named(self, name: str) -> Instance:
        return next(one for one in (self.primary, self.standby) if one.name == name)

    def kill(self, which: str) -> None:
        self.named(which).kill()

    def start(self, which: str) -> None:
        self.named(which).start()

    def promote(self) -> None:
        """Make the standby the primary, which waits for no standby until it has one again.

        Whoever calls this has cut the old primary off; two of them would be two truths.
        """
        self.standby.query("select pg_promote(true, 60)")
        self.primary, self.standby = self.standby, self.primary

    def rebuild_standby(self) -> None:
        """Make a new standby from the primary, in place of what is on the other host."""
        self.standby.kill()
        self.standby.copy_from(self.primary)
        self.standby.start()
        self.await_standby()
        self.primary.query(f"alter system set synchronous_standby_names = '{self.standby.name}'")
        self.primary.query("select pg_reload_conf()")
        until(lambda: self._state() == "sync", "the standby to be synchronous")
        # Commits wait once the checkpointer has read the setting, which it does before this.
        self.primary.query("checkpoint")

    def await_standby(self, seconds: float = 60) -> None:
        """Wait until the standby follows the primary."""
        until(lambda: self._state() is not None, "the standby to stream", seconds)

    def revive(self) -> None:
        """Start whichever of the two has ended, and wait until the standby follows again."""
        for one in (self.primary, self.standby):
            if not one.is_running():
                one.start()
        until(self._answers, "the primary to answer", 60)
        self.await_standby()

    def cancel_sync_waits(self) -> int:
        """Cancel every commit that waits for the standby; return how many there were."""
        return len(
            self.primary.query(
                "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
            )
        )

    def lock_table(self, name: str, seconds: float) -> threading.Thread:
        """Lock a table against everything, reading too; the thread ends with the lock."""

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
        for one in (self.primary, self.standby):
            one.free_disk()

    def detour(self, sources: Sequence[str], behaviour: Behaviour) -> None:
        """Lead what `sources` say to either server through a proxy that behaves like this."""
        for one in (self.primary, self.standby):
            one.detour.begin(sources, behaviour)

    def detour_behaviour(self, behaviour: Behaviour) -> None:
        """Change how the proxies behave that are in use."""
        for one in (self.primary, self.standby):
            one.detour.behave(behaviour)

    def end_detour(self) -> None:
        for one in (self.primary, self.standby):
            one.detour.end()

    def clock(self, offset: str) -> None:
        """Set the clocks of both, such as `+60s`; `+0` is the right time."""
        for one in (self.primary, self.standby):
            one.clock.set(offset)

    def _answers(self) -> bool:
        try:
            return bool(self.primary.query("select 1", seconds=5))
        except (asyncpg.PostgresError, OSError, TimeoutError):
            return False

    def _state(self) -> str | None:
        rows: Sequence[asyncpg.Record] = self.primary.query(
            "select sync_state from pg_stat_replication"
            " where application_name = $1 and state = 'streaming'",
            self.standby.name,
        )
        return rows[0][0] if rows else None
