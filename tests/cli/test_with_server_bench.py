"""`duly bench` against a real server: figures, and nothing that is left behind."""

import json
import signal

import pytest

from duly.bench.api_benchmark import LIVE, RUNS, SINGLES, ApiBenchmark, Bounds, Unfinished
from duly.bench.figure import Figure
from duly.client.sync import Client

TINY = Bounds(batches=2, batch=10, singles=20, runs=5, latencies=2, seconds=60)


def refuse(name, refusal):
    """Take no part for left out."""
    raise refusal


def test_it_tells_figures_and_leaves_nothing_behind(server):
    done = server.duly("bench", "--tasks", "5", "--seconds", "3600", "--output", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {figure["part"] for figure in told["figures"]} >= {"submit", "run"}
    assert all(figure["value"] > 0 for figure in told["figures"])
    assert told["name"] in done.stderr
    with server.client() as client:
        named = list(client.iter_tasks(name=told["name"]))
    assert {task["status"] for task in named} == {"done", "cancelled"}


def test_the_table_says_what_cannot_be_seen_from_outside(server):
    done = server.duly("bench", "--tasks", "2", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    assert "batch submit, 1,000 in a request" in done.stdout
    assert "This cannot measure" in done.stderr and "raw COPY" in done.stderr


def test_every_part_is_measured_within_its_bounds(server):
    told: list[Figure] = []
    with server.client() as client:
        run = ApiBenchmark(client, TINY)
        run.measure(told.append, refuse)
        tasks = list(client.iter_tasks(name=run.name))
    assert [one.part for one in told] == ["latency"] * 6 + ["run", "submit", "submit"]
    assert len(tasks) == 20 + 20 + 5 + 2
    assert sum(task["status"] == "done" for task in tasks) == 7


def test_a_task_that_fails_is_no_figure_and_all_the_same_nothing_is_left(server, monkeypatch):
    told: list[Figure] = []
    with server.client() as client:
        run = ApiBenchmark(client, TINY)
        failing = {**run._ready_task(), "command": ["/bin/false"], "max_attempts": 1}
        monkeypatch.setattr(run, "_ready_task", lambda: failing)
        with pytest.raises(Unfinished, match="failed after 1 attempts"):
            run.measure(told.append, refuse)
        assert list(client.iter_tasks(name=run.name, status=LIVE)) == []
    assert told == []


def test_what_the_limits_of_a_tenant_do_not_allow_is_left_out_and_the_rest_is_told(server):
    told: list[Figure] = []
    left_out: list[str] = []
    with server.client() as admin:
        admin.create_plan("bench-few", tasks_per_hour=1, burst=8)
        admin.create_tenant("bench-few", plan="bench-few")
        key = admin.create_key(tenant="bench-few", scopes=["submit", "read"])["key"]
    with Client(server.url, key) as client:
        run = ApiBenchmark(client, TINY)
        run.measure(told.append, lambda name, _: left_out.append(name))
        tasks = list(client.iter_tasks(name=run.name))
        assert left_out == [SINGLES, "batch submit, 10 in a request"]
        # Two one at a time, five at once, and the eighth before the limit was felt.
        assert sorted(task["status"] for task in tasks) == ["cancelled"] + ["done"] * 7
        again: list[str] = []
        ApiBenchmark(client, TINY).measure(told.append, lambda name, _: again.append(name))
    assert [one.part for one in told] == ["latency"] * 6 + ["run"]
    assert again == ["one task at a time", RUNS, *left_out]
    environment = server.environment | {"DULY_URL": server.url, "DULY_KEY": key}
    done = server.duly("bench", env=environment)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("Skipped: ") == 4 and "Limit exceeded" in done.stderr


def test_an_interrupt_takes_back_what_was_submitted(server):
    process = server.start("bench", "--tasks", "2", "--seconds", "60")
    assert process.stderr is not None
    name = process.stderr.readline().decode().split()[-1].rstrip(".")
    with server.client() as client:
        while not client.list_tasks(name=name, limit=1)["items"]:
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        assert list(client.iter_tasks(name=name, status=LIVE)) == []


def test_a_form_that_makes_no_sense_is_refused(server):
    assert server.duly("bench", "--output", "csv").returncode == 2
