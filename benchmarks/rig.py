"""The environment that every benchmark gets: a PostgreSQL, and the workload sizes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial

from benchmarks import cluster, fill
from benchmarks.cluster import Cluster


@dataclass(frozen=True)
class Sizes:
    """How much each part does: every one stays well below a minute on two cores of its own."""

    rounds: int = 3
    batches: int = 15
    batch: int = 1000
    singles: int = 4000
    commit_seconds: float = 3.0
    spawns: int = 2000
    runs: int = 2000
    run_rounds: int = 3
    latencies: int = 200
    plane: int = 20_000
    turns: int = 5
    turn: int = 4000
    turn_runs: int = 1000
    for_real: bool = False
    """Whether full stores are measured with a real agent, too, and not only with a stub."""
    waiting_some: int = 20_000
    waiting_many: int = 100_000
    tenants_some: int = 10
    tenants_many: int = 1000
    finished: int = 200_000
    snapshot_seconds: float = 20.0
    idle_seconds: float = 20.0
    attempts_at_once: int = 100
    cli_starts: int = 11
    graph_rounds: int = 3
    graph_width: int = 1000
    graph_depth: int = 200
    graph_size: int = 20_000
    schedules: int = 20_000
    schedules_due: int = 2000
    schedules_seconds: int = 10

    def scaled(self, factor: float) -> "Sizes":
        """Return the same with everything smaller, for trying it out; figures mean little then."""
        amounts = {one.name: getattr(self, one.name) for one in fields(self)}
        return Sizes(
            **{
                name: amount if isinstance(amount, bool) else max(type(amount)(amount * factor), 1)
                for name, amount in amounts.items()
            }
        )


def full() -> Sizes:
    """Return the sizes at which the targets are to be met; filling the stores takes a while."""
    return replace(
        Sizes(),
        runs=4000,
        run_rounds=10,
        latencies=500,
        turns=24,
        turn=20_000,
        for_real=True,
        waiting_some=200_000,
        waiting_many=1_000_000,
        tenants_some=100,
        tenants_many=10_000,
        finished=5_000_000,
        snapshot_seconds=600.0,
        graph_width=10_000,
        graph_depth=1000,
        graph_size=100_000,
        schedules=100_000,
        schedules_due=10_000,
        schedules_seconds=30,
    )


@dataclass(frozen=True)
class Rig:
    """Where a part measures."""

    postgres: Cluster
    sizes: Sizes

    @contextmanager
    def store(self) -> Iterator[str]:
        """Make an empty store for as long as the block lasts, and give its DSN."""
        with self.postgres.database() as dsn:
            # What is written back later was caused earlier, and is not to be paid for now.
            cluster.run(dsn, "checkpoint")
            yield dsn

    @contextmanager
    def full(self, *, waiting: int = 0, finished: int = 0, tenants: int = 1) -> Iterator[str]:
        """Give a store with so many tasks in it; one that was kept is used again."""
        name = f"full_{waiting}_{finished}_{tenants}"
        filling = partial(fill.fill, waiting=waiting, finished=finished, tenants=tenants)
        with self.postgres.filled_database(name, filling) as dsn:
            # The nodes of an earlier run are gone, but their names are taken.
            cluster.run(dsn, "select duly.remove_node(id) from duly.nodes", "checkpoint")
            yield dsn
