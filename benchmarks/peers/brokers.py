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
from benchmarks.peers.system import Broker, Unavailable

START_TIMEOUT_SECONDS = 15.0
STOP_TIMEOUT_SECONDS = 15.0
FSYNC = {Broker.REDIS: "everysec", Broker.REDIS_ALWAYS: "always"}


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """The address and the version of a running broker."""

    address: str = ""
    version: str = ""


@contextlib.contextmanager
def running(broker: Broker, folder: Path, programs: Path) -> Iterator[RunningBroker]:
    """Run `broker` with its data in `folder`."""
    if broker in FSYNC:
        with _redis(
            find_program("redis-server", programs), FSYNC[broker], folder
        ) as running_broker:
            yield running_broker
    elif broker is Broker.POSTGRES:
        with _postgres(folder) as running_broker:
            yield running_broker
    else:
        yield RunningBroker()


def redis_options(fsync: str, home: Path) -> list[str]:
    """Return the options of a Redis with an append-only file that listens on a unix socket only."""
    return [
        *("--port", "0"),
        *("--unixsocket", str(home / "redis.sock"), "--unixsocketperm", "700"),
        *("--dir", str(home), "--appendonly", "yes", "--appendfsync", fsync),
        *("--save", "", "--daemonize", "no", "--logfile", str(home / "redis.log")),
    ]


@contextlib.contextmanager
def _redis(program: Program, fsync: str, folder: Path) -> Iterator[RunningBroker]:
    home = folder / "redis"
    home.mkdir(mode=0o700)
    environment = os.environ | program.variables
    completed = subprocess.run(
        [program.path, "--version"], env=environment, capture_output=True, text=True, timeout=10
    )
    server = subprocess.Popen(
        [program.path, *redis_options(fsync, home)],
        env=environment,
        stdin=subprocess.DEVNULL,
        # A separate session keeps Ctrl-C away from it: it has to outlive its clients.
        start_new_session=True,
    )
    try:
        _await_socket(home / "redis.sock", server)
        yield RunningBroker(f"unix://{home}/redis.sock", f"Redis {redis_version(completed.stdout)}")
    finally:
        server.terminate()
        try:
            server.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def redis_version(output: str) -> str:
    """Return the version number in the output of `redis-server --version`."""
    return next(
        (word[2:] for word in output.split() if word.startswith("v=")), "of unknown version"
    )


def _await_socket(path: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.connect(str(path))
            return
        time.sleep(0.02)
    raise Unavailable(f"redis-server did not start; see {path.parent}/redis.log")


@contextlib.contextmanager
def _postgres(folder: Path) -> Iterator[RunningBroker]:
    """Run PostgreSQL as `duly up` does: with its programs and settings, and fsync on."""
    from duly.store.embedded.embedded_postgres import EmbeddedPostgres
    from duly.store.embedded.programs import bundled_programs

    server = EmbeddedPostgres(folder / "postgres")
    try:
        dsn = server.start()
        completed = subprocess.run(
            [str(bundled_programs() / "postgres"), "--version"], capture_output=True, text=True
        )
        yield RunningBroker(dsn, f"PostgreSQL {completed.stdout.split()[-1]}")
    finally:
        server.stop()
