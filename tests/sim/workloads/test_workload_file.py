"""Workload files are read as they are meant, and mistakes are reported with their line."""

import tomllib
from pathlib import Path

import pytest

from duly.errors import ConfigError
from duly.sim.workloads.fleet_options import FleetOptions
from duly.sim.workloads.toml_lines import key_lines, line_of
from duly.sim.workloads.workload_file import read_workload

WORKLOADS = sorted((Path(__file__).parents[3] / "workloads").glob("*.toml"))
SMALL = """\
duration = "1m"

[[nodes]]
count = 2
cpu = 4

[[classes]]
name = "small"
tier = "basic"
run_time = "2s"

[[tenants]]
name = "one"
[[tenants.arrivals]]
class = "small"
rate = "2/s"
"""


def read(tmp_path, text, **options):
    file = tmp_path / "workload.toml"
    file.write_text(text)
    return read_workload(file, FleetOptions(**options))


@pytest.mark.parametrize("file", WORKLOADS, ids=lambda file: file.stem)
def test_every_workload_of_the_repository_can_be_read(file):
    workload = read_workload(file, FleetOptions())
    assert workload.name == file.stem
    assert next(workload.arrivals.tasks(1)).id == 1


def test_arrivals_come_at_their_rate(tmp_path):
    tasks = list(read(tmp_path, SMALL.replace('"1m"', '"1h"')).arrivals.tasks(1))
    assert len(tasks) == pytest.approx(7200, rel=0.05)
    assert [task.arrived for task in tasks] == sorted(task.arrived for task in tasks)


def test_a_day_has_its_peak_where_the_file_says(tmp_path):
    text = SMALL.replace('"1m"', '"1d"').replace(
        '"2/s"', '"1000/h"\npeak = { factor = 2, at = "06:00" }'
    )
    hours = [int(task.arrived // 3600) for task in read(tmp_path, text).arrivals.tasks(1)]
    assert len(hours) == pytest.approx(24_000, rel=0.05)
    assert hours.count(5) + hours.count(6) > 3500 > 200 > hours.count(17) + hours.count(18)


def test_nodes_and_load_can_be_changed_from_outside(tmp_path):
    workload = read(tmp_path, SMALL, nodes=7, cpus_per_node=2, scale_load=2.0)
    assert workload.node_count == 7
    assert workload.nodes[0].capacity.cpu_milli == 2000
    assert sum(1 for _ in workload.arrivals.tasks(1)) == pytest.approx(240, rel=0.3)
    assert workload.notes == ("The load is 2 times that of the workload.",)


def test_a_sampled_workload_says_by_how_much(tmp_path):
    workload = read(tmp_path, f"scale = 2\n{SMALL}")
    assert workload.node_count == 1
    assert "divided by 2" in workload.notes[0]


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("cpu = 4", "cpus = 4", "line 5: There is no 'cpus' in [[nodes]]; did you mean 'cpu'?"),
        ("cpu = 4", 'cpu = "4"', "line 5: cpu must be a number, not '4'."),
        ("count = 2", "count = 0", "line 4: count must be a whole number of at least 1, not 0."),
        ('"basic"', '"basik"', "line 9: There is no tier 'basik'; did you mean 'basic'?"),
        ('"2s"', '"soon"', "line 10: run_time: 'soon' is not a duration. Try 90, 5m or 1h30m."),
        ('run_time = "2s"', "", "line 7: run_time is missing."),
        (
            '"2s"',
            '{ distribution = "lognormal", median = "9s", p95 = "1s" }',
            "line 10: p95 must not be below the median.",
        ),
        ('"2/s"', "2", 'line 16: rate must be like "20/s"'),
        ('"small"\nrate', '"smal"\nrate', "line 15: There is no class 'smal'"),
        ('tier = "basic"', "resources = { cpu = 9 }", "line 9: A task of 'small' fits on no node"),
        ('duration = "1m"', "", "line 1: duration is missing."),
        ("count = 2", "count = ", "is not valid TOML: Invalid value (at line 4"),
        (
            "[[nodes]]",
            "[scheduling]\nwindows = 5\n[[nodes]]",
            "line 4: There is no 'windows' in [scheduling]; did you mean 'window'?",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path, wrong, right, message):
    assert wrong in SMALL
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, SMALL.replace(wrong, right))
    assert message in raised.value.message


def test_lines_of_keys_are_those_of_the_file():
    text = 'a = 1\n\n[b.c]\nd = 2\n[[e]]\nf = { g = 1 }\n[[e]]\n[[e.h]]\n"i" = 3\n'
    tomllib.loads(text)
    lines = key_lines(text)
    assert line_of(lines, ("b", "c", "d")) == 4
    assert line_of(lines, ("e", 0, "f", "g")) == 6
    assert line_of(lines, ("e", 1, "h", 0, "i")) == 9
