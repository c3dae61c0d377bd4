"""Traces in the Standard Workload Format are replayed job by job."""

import gzip

import pytest

from duly.errors import ConfigError
from duly.sim.report import make_report
from duly.sim.simulation import Simulation
from duly.sim.workloads.fleet_options import FleetOptions
from duly.sim.workloads.swf import is_trace, read_trace, split


def line(number, submit, run, processors, user=1, group=1, requested=-1):
    return (
        f"{number} {submit} -1 {run} {processors} -1 -1 -1 {requested} -1 1 {user} {group} "
        "-1 -1 -1 -1 -1"
    )


def trace(tmp_path, *lines, name="small.swf"):
    file = tmp_path / name
    text = "\n".join(["; MaxProcs: 8", "; Note: made up", *lines, ""])
    if name.endswith(".gz"):
        file.write_bytes(gzip.compress(text.encode()))
    else:
        file.write_text(text)
    return file


JOBS = [
    line(1, 100, 50, 4, user=7),
    line(2, 110, 50, 4, user=8, group=2),
    line(3, 120, 50, 8, user=7),
    line(4, 130, -1, 8, user=7),
]


@pytest.mark.parametrize("name", ["small.swf", "small.swf.gz"])
def test_each_user_is_a_tenant_and_each_job_a_task(tmp_path, name):
    workload = read_trace(trace(tmp_path, *JOBS, name=name), FleetOptions())
    simulation = Simulation(workload, "duly", 1)
    simulation.run()
    report = make_report(simulation, "duly", 1.0)
    assert (report.workload, report.tasks, report.nodes) == ("small", 3, 1)
    assert set(report.tenants) == {"user-7", "user-8"}
    # The third needs all 8 processors, which are free when the second ends at 160 - 100.
    assert report.makespan == 110.0
    assert report.waits["short"]["p99"] == 40.0
    assert report.notes == ("1 jobs without a run time or processors were left out.",)


def test_groups_can_be_the_tenants(tmp_path):
    workload = read_trace(trace(tmp_path, *JOBS), FleetOptions(tenants_by_group=True))
    assert workload.tenants == ("group-1", "group-2")


def test_a_job_larger_than_a_node_runs_as_several_tasks_and_counts_once(tmp_path):
    workload = read_trace(trace(tmp_path, *JOBS), FleetOptions(nodes=3, cpus_per_node=3))
    simulation = Simulation(workload, "duly", 1)
    simulation.run()
    assert simulation.recorder.ended == 3
    assert [len(split(processors, 3)) for processors in (3, 4, 8)] == [1, 2, 3]
    assert "run as several tasks" in workload.notes[1]


def test_a_higher_load_is_the_same_jobs_in_less_time(tmp_path):
    workload = read_trace(trace(tmp_path, *JOBS), FleetOptions(scale_load=2.0))
    assert [task.arrived for task in workload.arrivals.tasks(1)] == [0.0, 5.0, 10.0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1 2 3"], "line 3: a job has 18 columns, and this has 3."),
        ([line(1, "x", 5, 1)], "line 3: 'x' is not a number."),
        ([], "has no job"),
    ],
)
def test_a_broken_trace_is_refused_with_the_line(tmp_path, lines, message):
    with pytest.raises(ConfigError) as raised:
        read_trace(trace(tmp_path, *lines), FleetOptions())
    assert message in raised.value.message


def test_traces_are_known_by_their_ending(tmp_path):
    names = ["a.swf", "a.swf.gz", "a.toml", "swf.gz"]
    assert [is_trace(tmp_path / name) for name in names] == [True, True, False, False]
