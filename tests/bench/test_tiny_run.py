"""A run of the benchmark end to end, too small for meaningful figures."""

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import checks, cluster, fill, machine, paired_comparison
from benchmarks.checks import CheckFailed
from benchmarks.cluster import Cluster
from benchmarks.rig import Rig, Sizes

ROOT = Path(__file__).parents[2]
SIZES = replace(Sizes(), turns=1, turn=3000)
"""A turn must exceed the capacity of the stub, or nothing is left to measure after the warm-up."""
ORPHANS = """
select count(*)
  from (select id from duly.live union all select task_id from duly.ends) as task_ids
 where not exists (select from duly.tasks where tasks.id = task_ids.id)
"""


@pytest.fixture
def rig(postgres):
    """A rig on the PostgreSQL of the tests, with a template that a real agent helped to create."""
    with tempfile.TemporaryDirectory(prefix="duly-test-bench-") as folder:
        Path(folder).chmod(0o755)
        postgres_cluster = Cluster(postgres, Path(folder))
        fill.make_template(postgres_cluster)
        yield Rig(postgres_cluster, SIZES)
        postgres_cluster.drop(cluster.TEMPLATE)


def test_a_filled_store_is_consistent_and_is_measured_beside_an_empty_one(rig):
    with rig.filled_store(waiting=120, finished=50, tenants=3) as full, rig.store() as empty:
        assert cluster.value(full, "select count(distinct tenant_id) from duly.live") == 3
        assert cluster.value(full, ORPHANS) == 0
        comparison = paired_comparison.compare(rig, paired_comparison.CONTROL_PLANE, empty, full)
        # Tasks that ended in a turn are replaced, so that every turn starts alike.
        assert (
            cluster.value(empty, "select count(*) from duly.live")
            == 3000 * paired_comparison.BACKLOG_FACTOR
        )
        with pytest.raises(CheckFailed):
            checks.none_lost(full, checks.count(full) + 1)
    assert [turn.tasks > 0 for turn in (*comparison.base, *comparison.other)] == [True, True]
    rate, cpu = paired_comparison.figures("waiting", "a name", comparison, "an empty store", 0.9)
    assert rate.limit and cpu.limit
    assert machine.describe(rig.postgres).fsync == "on"


def test_a_store_is_filled_once_and_the_leftover_of_a_failed_run_is_not_reused(rig):
    postgres_cluster = Cluster(rig.postgres.dsn, rig.postgres.folder, is_kept=True)
    filled = []
    with pytest.raises(CheckFailed), postgres_cluster.filled_database("once", filled.append):
        raise CheckFailed("a task ran twice")
    for _ in range(2):
        with postgres_cluster.filled_database("once", filled.append) as dsn:
            assert cluster.value(dsn, "select count(*) from duly.tasks") == 0
    assert len(filled) == 2
    postgres_cluster.drop("once")


def test_a_part_that_does_not_exist_is_refused_by_name():
    command = [sys.executable, "-m", "benchmarks", "submit,nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no part 'nothing'" in done.stderr
