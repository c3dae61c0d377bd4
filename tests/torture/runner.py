"""Executes a run: a cluster under load and faults, then a quiet phase, then the verdict.

The runner judges nothing. It records which fault it injected when, and leaves that record, with
everything that other processes wrote, in one folder that `run_folder.tell` judges.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from duly import clock
from tests.torture import cluster_watch, database_dump, journal, run_folder
from tests.torture.clients import Orders
from tests.torture.cluster import Cluster
from tests.torture.fault_injector import FaultInjector, Say
from tests.torture.fault_order import WeightedFault
from tests.torture.network import Network
from tests.torture.postgres import PostgresPair
from tests.torture.processes import Program, until
from tests.torture.run_folder import Record

ROOT = Path(__file__).parents[2]
NODES = ("node-a", "node-b", "node-c")
QUIET = 60.0
"""Seconds after the last heal in which everything must have ended."""
LEFT = """
select (select count(*) from duly.live)
       + (select count(*) from duly.schedules where next_run_at is not null and paused_at is null)
"""
"""How much is still to be done: tasks that have not ended, and schedules that will fire."""


@dataclass(frozen=True)
class Options:
    """What a run is made with."""

    seed: int
    minutes: float
    cards: tuple[WeightedFault, ...]
    rate: float = 28.0
    """Calls of clients per second."""
    longest: float = 20.0
    """Seconds that a task of theirs takes at most."""
    decks: int | None = None
    """How often every fault comes, if the run is to end with that."""


def run(options: Options, report: Path, say: Say = lambda _: None) -> None:
    """Make a run, and leave in `report` everything from which it can be judged."""
    folder = Path(tempfile.mkdtemp(prefix="duly-torture-"))
    folder.chmod(0o755)  # Tasks have users of their own, and write the ledger that is in it.
    try:
        with (
            Network() as network,
            PostgresPair(network, folder) as postgres,
            Cluster(network, postgres, folder, nodes=NODES) as cluster,
        ):
            try:
                _play(cluster, folder, options, say)
            finally:
                _keep(folder, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def commit() -> str:
    """Return what is checked out here."""
    asked = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return asked.stdout.strip() or "unknown"


def _play(cluster: Cluster, folder: Path, options: Options, say: Say) -> None:
    journal.begin(cluster.postgres.local_dsn)
    injector = FaultInjector(cluster, options.cards, options.seed, folder / run_folder.SIGHTS, say)
    began = clock.monotonic()
    with _watched(cluster, folder), _loaded(cluster, folder, options):
        injector.run_faults(began + options.minutes * 60, options.decks)
    gone = [
        f"[lab] {name} has ended by itself" for name in cluster.names if _is_gone(cluster, name)
    ]
    cluster.heal()
    _await_the_end(cluster)
    database_dump.read(cluster.postgres.local_dsn).save(folder / run_folder.BOOKS)
    Record(
        seed=options.seed,
        commit=commit(),
        minutes=options.minutes,
        began=began,
        ended=clock.monotonic(),
        episodes=tuple(injector.episodes),
        mishaps=(*injector.mishaps, *gone),
    ).save(folder)


@contextmanager
def _loaded(cluster: Cluster, folder: Path, options: Options) -> Iterator[None]:
    """Let clients do their work meanwhile."""
    file = folder / "load.orders"
    orders = Orders(
        cluster.urls,
        cluster.key,
        options.seed,
        folder,
        rate=options.rate,
        longest=options.longest,
    )
    orders.write(file)
    program = _python(cluster, folder, "clients", file)
    try:
        yield
        assert program.is_running(), f"the clients ended: {program.log.read_text()[-2000:]}"
    finally:
        code = program.stop(90)
    assert code == 0, f"the clients failed: {program.log.read_text()[-2000:]}"


@contextmanager
def _watched(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Let somebody look at the cluster meanwhile."""
    file = folder / "watch.orders"
    servers = {name: cluster.url(name) for name in cluster.server_names}
    cluster_watch.Orders(cluster.key, servers, str(folder / run_folder.SIGHTS)).write(file)
    program = _python(cluster, folder, "cluster_watch", file)
    try:
        yield
    finally:
        program.kill()


def _python(cluster: Cluster, folder: Path, module: str, orders: Path) -> Program:
    """Start a module of ours on the clients' host."""
    args = [sys.executable, "-m", f"tests.torture.{module}", str(orders)]
    env = {"PYTHONPATH": str(ROOT)}
    return cluster.client_host.spawn(args, log=folder / f"{module}.log", env=env)


def _await_the_end(cluster: Cluster) -> None:
    """Wait until nothing is left to be done, for as long as that may take; the judge looks."""

    def all_ended() -> bool:
        rows = cluster.postgres.primary.query(LEFT)
        return rows[0][0] == 0

    try:
        until(all_ended, "everything to end", QUIET)
    except AssertionError:
        return


def _is_gone(cluster: Cluster, name: str) -> bool:
    return not cluster.program(name).is_running()


def _keep(folder: Path, report: Path) -> None:
    """Take out of the run's folder what it is judged by, and what every process wrote."""
    logs = report / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.name in run_folder.FILES:
            shutil.copyfile(file, report / file.name)
        elif file.suffix == ".log":
            shutil.copyfile(file, logs / file.name)
