"""What people see of a schedule."""

import re
import sys
from datetime import UTC, datetime

import pytest

from duly.cli.schedules.schedule_tables import (
    format_next_run,
    format_recurrence,
    print_fire_times,
    print_occurrences,
    print_schedules,
    schedule_details,
)
from tests.cli.shapes import reason

NOW = datetime(2027, 1, 31, 6, 30, tzinfo=UTC)
NIGHTLY = {
    "id": "17",
    "name": None,
    "tenant": "default",
    "user": None,
    "task": {"source": "#!/bin/sh\n", "env": {"TOKEN": "hush"}, "resources": {"cpu": 2}},
    "graph": None,
    "run_at": None,
    "daily": "06:30",
    "weekly": None,
    "monthly": None,
    "annually": None,
    "every": None,
    "cron": None,
    "timezone": "UTC",
    "start_at": None,
    "end_at": None,
    "jitter": 90.0,
    "short_month": None,
    "misfire": "once",
    "overlap": "skip",
    "next_run_at": None,
    "paused": False,
    "paused_at": None,
    "created_at": "2027-01-31T06:29:00Z",
    "updated_at": "2027-01-31T06:29:00Z",
}
FIRED = {
    "fire_at": "2027-01-31T05:30:00Z",
    "last_at": "2027-01-31T05:30:00Z",
    "times": 1,
    "task": "7251039274172416",
    "graph": None,
    "scheduling_type": "daily",
    "reason": None,
    "recorded_at": "2027-01-31T05:30:00Z",
}
MISSED = {
    "fire_at": "2027-01-28T05:30:00Z",
    "last_at": "2027-01-30T05:30:00Z",
    "times": 3,
    "task": None,
    "reason": reason("paused", "The schedule was paused."),
}


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_schedule_tells_the_names_of_its_variables_and_not_their_values():
    told = dict(schedule_details(NIGHTLY, NOW))
    assert told["task"] == "an uploaded script\nenv: TOKEN\nresources: cpu=2"
    assert (told["jitter"], told["next run"]) == ("1 min 30 s", "never again")
    assert set(told) == {
        "id", "when", "timezone", "jitter", "next run", "overlap", "misfire", "task", "tenant",
        "created",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "daily 06:30"),
        ({"daily": None, "every": 1.0}, "every 1 s"),
        ({"daily": None, "cron": "0 6 * * *"}, "cron 0 6 * * *"),
    ],
)
def test_when_it_fires_is_said_as_it_was_written(changes, words):
    assert format_recurrence({**NIGHTLY, **changes}) == words


def test_one_that_is_paused_has_no_next_run():
    assert format_next_run(
        {**NIGHTLY, "next_run_at": "2027-02-01T06:30:00Z", "paused": True}, NOW
    ) == ("paused")


def test_missed_times_in_a_row_are_one_line_with_the_reason(capsys):
    print_occurrences([FIRED, {**FIRED, **MISSED}], {FIRED["task"]: "done"}, "Europe/Berlin")
    assert lines(capsys.readouterr().out)[2:] == [
        "Sun 2027-01-31 06:30:00 CET 7251039274172416 done",
        "Thu 2027-01-28 06:30:00 CET to Sat 2027-01-30 06:30:00 CET (3 times) none missed"
        " The schedule was paused.",
    ]


def test_a_graph_is_told_with_what_depends_on_what(capsys):
    after = {"ref": "b", "depends_on": ["a", {"task": "c", "on": "always"}]}
    graph = {"name": "g", "tasks": [{"ref": "a"}, after]}
    told = dict(schedule_details({**NIGHTLY, "task": None, "graph": graph}, NOW))
    assert told["graph"] == "g\na\nb after a, c (always)"
    assert "task" not in told
    fired = {**FIRED, "task": None, "graph": "17"}
    print_occurrences([fired, {**FIRED, **MISSED}], {"17": "running"}, "UTC")
    heads, _, first, second = lines(capsys.readouterr().out)
    assert heads.split()[1] == "GRAPH"
    assert first.endswith("UTC 17 running")
    assert "none missed" in second


def test_a_task_that_is_forgotten_has_its_id_left(capsys):
    print_occurrences([FIRED], {}, "UTC")
    assert lines(capsys.readouterr().out)[2:] == ["Sun 2027-01-31 05:30:00 UTC 7251039274172416"]


def test_a_zone_that_this_machine_does_not_know_is_told_in_utc(capsys):
    print_fire_times([FIRED["fire_at"]], "Moon/Tycho", NOW)
    assert lines(capsys.readouterr().out)[2].startswith("Sun 2027-01-31 05:30:00 UTC")


@pytest.mark.parametrize("width", [44, 80])
def test_on_a_narrow_terminal_the_ids_are_whole(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    names = {"name": "the report of the night", "user": "kim", "timezone": "America/New_York"}
    late = {"next_run_at": "2027-02-01T06:30:00Z"}
    ids = ["59332248037490694", "59332248037490688"]
    print_schedules([{**NIGHTLY, **names, **late, "id": one} for one in ids], NOW)
    printed = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert all(one in printed for one in ids)
    assert max(map(len, printed.splitlines())) <= width


def test_of_the_input_of_a_task_only_the_size_is_told():
    told = dict(schedule_details({**NIGHTLY, "task": {"command": ["cat"], "stdin": "hush"}}, NOW))
    assert told["task"] == "cat\nstdin: 4 bytes"
