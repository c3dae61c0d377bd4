"""A run of the benchmark that is too small to say anything, but real from end to end."""

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import cluster, fill, machine, stores
from benchmarks.checks import Wrong
from benchmarks.cluster import Cluster
from benchmarks.rig import Rig, Sizes

ROOT = Path(__file__).parents[2]
SIZES = replace(Sizes(), drained=50)
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


def test_a_filled_store_is_taken_for_one_of_dulys_own_and_run_off(rig):
    with rig.store(waiting=120, finished=50, tenants=3) as dsn:
        assert cluster.value(dsn, "select count(distinct tenant_id) from duly.live") == 3
        assert cluster.value(dsn, STRAYS) == 0
        assert stores._rate(rig, stores.BY_STUB, dsn, 170) > 0
        with pytest.raises(Wrong):
            stores.checks.none_lost(dsn, 171)
    assert machine.describe(rig.postgres).fsync == "on"


def test_a_part_that_does_not_exist_is_refused_by_name():
    command = [sys.executable, "-m", "benchmarks", "submit,nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no part 'nothing'" in done.stderr
