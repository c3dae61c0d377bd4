"""Runs the brokers of the queues, Redis and PostgreSQL, each for the duration of a `with` block.

Both listen on a unix socket in a private folder and nowhere else.
"""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.debian import Program, find_program
from benchmarks.peers.system import Broker, LeftOut

START_PATIENCE = 15.0
STOP_PATIENCE = 15.0
FSYNC = {Broker.REDIS: "everysec", Broker.REDIS_ALWAYS: "always"}


@dataclass(frozen=True, slots=True)
class Running:
    """How to reach a broker, and what it calls itself."""

    address: str = ""
    version: str = ""


@contextlib.contextmanager
def running(broker: Broker, folder: Path, programs: Path) -> Iterator[Running]:
    """Run `broker` with its data in `folder`."""
    if broker in FSYNC:
        with _redis(find_program("redis-server", programs), FSYNC[broker], folder) as found:
            yield found
    elif broker is Broker.POSTGRES:
        with _postgres(folder) as found:
            yield found
    else:
        yield Running()


def redis_options(fsync: str, home: Path) -> list[str]:
    """Return the arguments of a Redis that logs every write and is reached by a socket alone."""
    return [
        *("--port", "0"),
        *("--unixsocket", str(home / "redis.sock"), "--unixsocketperm", "700"),
        *("--dir", str(home), "--appendonly", "yes", "--appendfsync", fsync),
        *("--save", "", "--daemonize", "no", "--logfile", str(home / "redis.log")),
    ]


@contextlib.contextmanager
def _redis(program: Program, fsync: str, folder: Path) -> Iterator[Running]:
    home = folder / "redis"
    home.mkdir(mode=0o700)
    environment = os.environ | program.variables
    said = subprocess.run(
        [program.path, "--version"], env=environment, capture_output=True, text=True, timeout=10
    )
    server = subprocess.Popen(
        [program.path, *redis_options(fsync, home)],
        env=environment,
        stdin=subprocess.DEVNULL,
        # A session of its own: Ctrl-C is for us, and we stop it after its clients.
        start_new_session=True,
    )
    try:
        _await_socket(home / "redis.sock", server)
        yield Running(f"unix://{home}/redis.sock", f"Redis {redis_version(said.stdout)}")
    finally:
        server.terminate()
        try:
            server.wait(STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def redis_version(said: str) -> str:
    """Return the number in what `redis-server --version` says."""
    return next((word[2:] for word in said.split() if word.startswith("v=")), "of no known version")


def _await_socket(path: Path, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_PATIENCE
    while time.monotonic() < until and server.poll() is None:
        with socket.socket(socket.AF_UNIX) as attempt, contextlib.suppress(OSError):
            attempt.connect(str(path))
            return
        time.sleep(0.02)
    raise LeftOut(f"redis-server did not start; see {path.parent}/redis.log")


@contextlib.contextmanager
def _postgres(folder: Path) -> Iterator[Running]:
    """Run PostgreSQL as Duly does: its programs, its settings, fsync on."""
    from duly.store.embedded.embedded_postgres import EmbeddedPostgres
    from duly.store.embedded.programs import bundled_programs

    server = EmbeddedPostgres(folder / "postgres")
    try:
        dsn = server.start()
        said = subprocess.run(
            [str(bundled_programs() / "postgres"), "--version"], capture_output=True, text=True
        )
        yield Running(dsn, f"PostgreSQL {said.stdout.split()[-1]}")
    finally:
        server.stop()
