"""What every part is given: a PostgreSQL, and how much to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from urllib.parse import urlsplit

from benchmarks import cluster, fill
from benchmarks.cluster import Cluster


@dataclass(frozen=True)
class Sizes:
    """How much each part does; every part stays below a minute, filling stores aside."""

    rounds: int = 3
    batches: int = 15
    batch: int = 1000
    singles: int = 4000
    commit_seconds: float = 3.0
    spawns: int = 3000
    runs: int = 2000
    latencies: int = 200
    plane: int = 20_000
    drains: int = 2
    drained: int = 20_000
    drained_runs: int = 1000
    waiting_some: int = 200_000
    waiting_many: int = 1_000_000
    tenants_some: int = 100
    tenants_many: int = 10_000
    finished: int = 5_000_000
    snapshot_round: int = 5000
    snapshot_seconds: float = 30.0
    idle_seconds: float = 20.0
    attempts_at_once: int = 100
    cli_starts: int = 11

    def scaled(self, factor: float) -> "Sizes":
        """Return the same with everything smaller, for trying it out; figures mean little then."""
        return Sizes(
            **{
                one.name: max(type(getattr(self, one.name))(getattr(self, one.name) * factor), 1)
                for one in fields(self)
            }
        )


@dataclass(frozen=True)
class Rig:
    """Where a part measures."""

    postgres: Cluster
    sizes: Sizes

    @contextmanager
    def store(self, *, waiting: int = 0, finished: int = 0, tenants: int = 1) -> Iterator[str]:
        """Make a store with so many tasks in it, for as long as the block lasts; give its DSN."""
        with self.postgres.database() as dsn:
            if waiting or finished:
                fill.fill(dsn, waiting=waiting, finished=finished, tenants=tenants)
            # What is written back later was caused earlier, and is not to be paid for now.
            cluster.run(dsn, "checkpoint")
            yield dsn

    @contextmanager
    def copy(self, dsn: str) -> Iterator[str]:
        """Make a copy of a store to which nobody is connected; give its DSN."""
        with self.postgres.database(urlsplit(dsn).path.lstrip("/")) as copied:
            cluster.run(copied, "checkpoint")
            yield copied
