"""`duly bench` against a real server: figures, and nothing that is left behind."""

import json
import signal

import pytest

from duly.bench.figure import Figure
from duly.bench.outside import LIVE, Bounds, Outside, Unfinished

TINY = Bounds(batches=2, batch=10, singles=20, runs=5, latencies=2, seconds=60)


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
    assert "Not to be seen from here" in done.stderr and "raw COPY" in done.stderr


def test_every_part_is_measured_within_its_bounds(server):
    told: list[Figure] = []
    with server.client() as client:
        run = Outside(client, TINY)
        run.measure(told.append)
        tasks = list(client.iter_tasks(name=run.name))
    assert [one.part for one in told] == ["submit", "submit", "run"] + ["latency"] * 6
    assert len(tasks) == 20 + 20 + 5 + 2
    assert sum(task["status"] == "done" for task in tasks) == 7


def test_a_task_that_fails_is_no_figure_and_all_the_same_nothing_is_left(server, monkeypatch):
    told: list[Figure] = []
    with server.client() as client:
        run = Outside(client, TINY)
        failing = {**run._due(), "command": ["/bin/false"], "max_attempts": 1}
        monkeypatch.setattr(run, "_due", lambda: failing)
        with pytest.raises(Unfinished, match="failed after 1 attempts"):
            run.measure(told.append)
        assert list(client.iter_tasks(name=run.name, status=LIVE)) == []
    assert [one.part for one in told] == ["submit", "submit"]


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
