"""A run of the benchmark that is too small to say anything, but real from end to end."""

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import checks, cluster, fill, machine, paired_comparison
from benchmarks.checks import Wrong
from benchmarks.cluster import Cluster
from benchmarks.rig import Rig, Sizes

ROOT = Path(__file__).parents[2]
SIZES = replace(Sizes(), turns=1, turn=3000)
"""More in a turn than the stub has room for, or there would be nothing to measure."""
STRAYS = """
select count(*)
  from (select id from duly.live union all select task_id from duly.ends) as known
 where not exists (select from duly.tasks where tasks.id = known.id)
"""


@pytest.fixture
def rig(postgres):
    """A rig on the PostgreSQL of the tests, with a template that a real agent had a part in."""
    with tempfile.TemporaryDirectory(prefix="duly-test-bench-") as folder:
        Path(folder).chmod(0o755)
        place = Cluster(postgres, Path(folder))
        fill.make_template(place)
        yield Rig(place, SIZES)
        place.drop(cluster.TEMPLATE)


def test_a_filled_store_is_taken_for_one_of_dulys_own_and_measured_beside_an_empty_one(rig):
    with rig.full(waiting=120, finished=50, tenants=3) as full, rig.store() as empty:
        assert cluster.value(full, "select count(distinct tenant_id) from duly.live") == 3
        assert cluster.value(full, STRAYS) == 0
        compared = paired_comparison.compare(rig, paired_comparison.BY_STUB, empty, full)
        # What has ended in a turn is replaced, so that the next one finds the same.
        assert (
            cluster.value(empty, "select count(*) from duly.live") == 3000 * paired_comparison.SPARE
        )
        with pytest.raises(Wrong):
            checks.none_lost(full, checks.count(full) + 1)
    assert [turn.tasks > 0 for turn in (*compared.base, *compared.other)] == [True, True]
    rate, cpu = paired_comparison.told("waiting", "a name", compared, "an empty store", 0.9)
    assert rate.limit and cpu.limit
    assert machine.describe(rig.postgres).fsync == "on"


def test_a_store_is_filled_once_and_what_a_failed_run_leaves_is_not_used_again(rig):
    place = Cluster(rig.postgres.dsn, rig.postgres.folder, is_kept=True)
    filled = []
    with pytest.raises(Wrong), place.filled_database("once", filled.append):
        raise Wrong("a task ran twice")
    for _ in range(2):
        with place.filled_database("once", filled.append) as dsn:
            assert cluster.value(dsn, "select count(*) from duly.tasks") == 0
    assert len(filled) == 2
    place.drop("once")


def test_a_part_that_does_not_exist_is_refused_by_name():
    command = [sys.executable, "-m", "benchmarks", "submit,nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no part 'nothing'" in done.stderr
