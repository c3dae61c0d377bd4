"""The environment that every benchmark gets: a PostgreSQL, and the workload sizes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial

from benchmarks import cluster, fill
from benchmarks.cluster import Cluster


@dataclass(frozen=True)
class Sizes:
    """Workload sizes; with the defaults each part takes well below a minute on two idle cores."""

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
    with_real_agent: bool = False
    """Whether filled stores are also measured with a real agent, not only with a stub."""
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
        """Return all sizes multiplied by `factor`, for quick tries whose figures mean little."""
        amounts = {field.name: getattr(self, field.name) for field in fields(self)}
        return Sizes(
            **{
                name: amount if isinstance(amount, bool) else max(type(amount)(amount * factor), 1)
                for name, amount in amounts.items()
            }
        )


def full_sizes() -> Sizes:
    """Return the sizes that the targets assume; filling the stores takes a while."""
    return replace(
        Sizes(),
        runs=4000,
        run_rounds=10,
        latencies=500,
        turns=24,
        turn=20_000,
        with_real_agent=True,
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
    """What a part measures with: PostgreSQL and the workload sizes."""

    postgres: Cluster
    sizes: Sizes

    @contextmanager
    def store(self) -> Iterator[str]:
        """Create an empty store for the duration of the block; yields its DSN."""
        with self.postgres.database() as dsn:
            # Dirty pages of earlier work must not be written during the measurement.
            cluster.run(dsn, "checkpoint")
            yield dsn

    @contextmanager
    def filled_store(
        self, *, waiting: int = 0, finished: int = 0, tenants: int = 1
    ) -> Iterator[str]:
        """Yield the DSN of a filled store; one that an earlier run has kept is reused."""
        name = f"full_{waiting}_{finished}_{tenants}"
        fill_store = partial(fill.fill, waiting=waiting, finished=finished, tenants=tenants)
        with self.postgres.filled_database(name, fill_store) as dsn:
            # The nodes of an earlier run are gone, but their names are still taken.
            cluster.run(dsn, "select duly.remove_node(id) from duly.nodes", "checkpoint")
            yield dsn
