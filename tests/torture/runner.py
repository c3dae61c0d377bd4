"""Executes a run: a cluster under load and faults, then a quiet phase.

The runner judges nothing. It records the injected faults, and leaves the records of all processes
in one folder, which `run_folder.judge_run` judges.
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
from tests.torture.clients import LoadOptions
from tests.torture.cluster import Cluster
from tests.torture.fault_injector import FaultInjector, Log
from tests.torture.fault_order import WeightedFault
from tests.torture.network import Network
from tests.torture.postgres import PostgresPair
from tests.torture.processes import Program, until
from tests.torture.run_folder import RunRecord

ROOT = Path(__file__).parents[2]
NODES = ("node-a", "node-b", "node-c")
QUIET_SECONDS = 60.0
"""Seconds after the end of the last fault in which all tasks must have ended."""
REMAINING = """
select (select count(*) from duly.live)
       + (select count(*) from duly.schedules where next_run_at is not null and paused_at is null)
"""
"""The number of live tasks, and of schedules that will fire."""


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    seed: int
    minutes: float
    faults: tuple[WeightedFault, ...]
    rate: float = 28.0
    """Calls of clients per second."""
    max_task_seconds: float = 20.0
    """The longest duration of a task."""
    repetitions: int | None = None
    """How often each fault is injected, instead of a duration."""


def run(options: Options, report: Path, log: Log = lambda _: None) -> None:
    """Execute a run, and leave all records in the folder `report`."""
    folder = Path(tempfile.mkdtemp(prefix="duly-torture-"))
    folder.chmod(0o755)  # Tasks run as other users, and write to the ledger in it.
    try:
        with (
            Network() as network,
            PostgresPair(network, folder) as postgres,
            Cluster(network, postgres, folder, nodes=NODES) as cluster,
        ):
            try:
                _execute(cluster, folder, options, log)
            finally:
                _copy_records(folder, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def commit() -> str:
    """Return the checked-out commit."""
    completed = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return completed.stdout.strip() or "unknown"


def _execute(cluster: Cluster, folder: Path, options: Options, log: Log) -> None:
    journal.begin(cluster.postgres.local_dsn)
    injector = FaultInjector(
        cluster, options.faults, options.seed, folder / run_folder.OBSERVATIONS, log
    )
    began = clock.monotonic()
    with _observed(cluster, folder), _under_load(cluster, folder, options):
        injector.run_faults(began + options.minutes * 60, options.repetitions)
    ended_unexpectedly = [
        f"[lab] {name} ended unexpectedly" for name in cluster.names if _has_ended(cluster, name)
    ]
    cluster.heal()
    _await_quiet(cluster)
    database_dump.read(cluster.postgres.local_dsn).save(folder / run_folder.DUMP)
    RunRecord(
        seed=options.seed,
        commit=commit(),
        minutes=options.minutes,
        began=began,
        ended=clock.monotonic(),
        episodes=tuple(injector.episodes),
        lab_errors=(*injector.lab_errors, *ended_unexpectedly),
    ).save(folder)


@contextmanager
def _under_load(cluster: Cluster, folder: Path, options: Options) -> Iterator[None]:
    """Run the clients for the duration of the block."""
    file = folder / "load.json"
    load_options = LoadOptions(
        cluster.urls,
        cluster.key,
        options.seed,
        folder,
        rate=options.rate,
        max_task_seconds=options.max_task_seconds,
    )
    load_options.write(file)
    program = _python(cluster, folder, "clients", file)
    try:
        yield
        assert program.is_running(), f"the clients ended: {program.log.read_text()[-2000:]}"
    finally:
        code = program.stop(90)
    assert code == 0, f"the clients failed: {program.log.read_text()[-2000:]}"


@contextmanager
def _observed(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Observe the cluster for the duration of the block."""
    file = folder / "watch.json"
    servers = {name: cluster.url(name) for name in cluster.server_names}
    observations = str(folder / run_folder.OBSERVATIONS)
    cluster_watch.WatchOptions(cluster.key, servers, observations).write(file)
    program = _python(cluster, folder, "cluster_watch", file)
    try:
        yield
    finally:
        program.kill()


def _python(cluster: Cluster, folder: Path, module: str, options_file: Path) -> Program:
    """Start a module of this package on the clients' host."""
    args = [sys.executable, "-m", f"tests.torture.{module}", str(options_file)]
    env = {"PYTHONPATH": str(ROOT)}
    return cluster.client_host.spawn(args, log=folder / f"{module}.log", env=env)


def _await_quiet(cluster: Cluster) -> None:
    """Wait until nothing remains, at most QUIET_SECONDS; the invariants check the result."""

    def all_ended() -> bool:
        rows = cluster.postgres.primary.query(REMAINING)
        return rows[0][0] == 0

    try:
        until(all_ended, "everything to end", QUIET_SECONDS)
    except AssertionError:
        return


def _has_ended(cluster: Cluster, name: str) -> bool:
    return not cluster.program(name).is_running()


def _copy_records(folder: Path, report: Path) -> None:
    """Copy the records of the run and the logs of all processes."""
    logs = report / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.name in run_folder.FILES:
            shutil.copyfile(file, report / file.name)
        elif file.suffix == ".log":
            shutil.copyfile(file, logs / file.name)
