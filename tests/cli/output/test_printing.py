import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from duly.cli.accounts.shared import audit_row
from duly.cli.output.details import format_resources, node_details, status_details, task_details
from duly.cli.output.printing import Output, print_items, print_value
from duly.cli.output.tables import print_attempts, print_nodes, print_pairs, print_tasks
from tests.cli.shapes import reason, task

NOW = datetime(2027, 1, 31, 12, 0, tzinfo=UTC)
HOSTILE = "[red]x[/red]\x1b]0;owned\x07\x1b[2J\u202e\n"


@pytest.mark.parametrize("output", [Output.JSON, Output.JSONL])
def test_json_is_what_the_api_answered(capsys, output):
    whole = task(name=HOSTILE)
    print_value(whole, output)
    printed = capsys.readouterr().out
    assert json.loads(printed) == whole
    assert "\x1b" not in printed


def test_a_list_has_the_shape_of_the_answer(capsys):
    print_items([task()], "next", Output.JSON)
    assert json.loads(capsys.readouterr().out) == {"items": [task()], "next_cursor": "next"}


def test_one_line_for_each_item(capsys):
    print_items([task(id="2"), task(id="1")], None, Output.JSONL)
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["2", "1"]


def test_ids_are_for_other_commands(capsys):
    print_items([task(id="2"), task(id="1")], None, Output.ID)
    assert capsys.readouterr().out == "2\n1\n"


def test_csv_can_be_read_back_whatever_a_name_holds(capsys):
    name = 'a,"b"\nc ü'
    print_items([task(name=name)], None, Output.CSV)
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["name"], row["exit_code"], row["outcome"]) == (name, "0", "succeeded")


def test_a_table_cannot_be_styled_by_what_a_tenant_wrote(capsys):
    bad = task(name=HOSTILE, reason=reason("x", HOSTILE), labels={HOSTILE: HOSTILE})
    print_tasks([bad], NOW)
    print_pairs(task_details(bad, NOW))
    printed = capsys.readouterr().out
    assert "[red]x[/red]" in printed
    assert not set(printed) & {"\x1b", "\x07", "\u202e"}


def test_a_table_that_is_piped_loses_nothing(capsys):
    print_tasks([task(name="n" * 150, reason=reason("x", "m" * 300))], NOW)
    printed = capsys.readouterr().out
    assert "n" * 150 in printed
    assert "m" * 300 in printed


def test_what_runs_is_shown_the_way_it_is_typed(capsys):
    print_pairs(task_details(task(), NOW))
    assert "sh -c 'echo hi'" in capsys.readouterr().out


def test_everything_that_was_asked_of_a_task_is_shown():
    asked = task(
        command=None,
        source="#!/bin/sh\ntrue\n",
        priority=5,
        on_lost="fail",
        unique={"key": "k", "while": "live"},
        depends_on=["7", {"task": "8", "on": "failure"}],
        graph="9",
        ref="encode",
        idempotency_key="order-17",
    )
    shown = dict(task_details(asked, NOW))
    assert shown["script"] == "#!/bin/sh (2 lines)"
    assert (shown["priority"], shown["on lost"]) == ("5", "fails")
    assert (shown["unique key"], shown["depends on"]) == ("k, while live", "7, 8 (failure)")
    assert (shown["graph"], shown["ref"]) == ("9", "encode")
    assert shown["idempotency key"] == "order-17"


def test_progress_is_shown_as_it_was_said_and_when(capsys):
    told = {
        "fraction": 0.425,
        "text": "page 4\x1b[2J",
        "at": (NOW - timedelta(seconds=3)).isoformat(),
    }
    print_pairs(task_details(task(status="running", progress=told), NOW))
    assert "42%: page 4\ufffd[2J (3 s ago)" in capsys.readouterr().out
    assert (
        dict(task_details(task(progress=told | {"text": None}), NOW))["progress"] == "42% (3 s ago)"
    )
    assert "progress" not in dict(task_details(task(progress=None), NOW))


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "waiting", "started_at": None, "finished_at": None, "usage": None},
        {"status": "scheduled", "started_at": None, "node": None, "attempt": 0},
        {
            "status": "failed",
            "losses": 2,
            "exit_code": 137,
            "reason": reason("signal", "x", signal=9),
        },
        {"command": None, "script_path": "/x", "tier": None, "labels": {"a": "b"}},
    ],
)
def test_a_task_can_be_shown_wherever_it_is(capsys, changes):
    print_tasks([task(**changes)], NOW)
    print_pairs(task_details(task(**changes), NOW))
    assert "7251039274172416" in capsys.readouterr().out


def test_a_task_without_a_name_is_called_by_its_ref(capsys):
    print_tasks([task(name=None, ref="encode"), task(name="named", ref="other")], NOW)
    out = capsys.readouterr().out
    assert ("encode" in out, "named" in out, "other" in out) == (True, True, False)


def test_attempts_and_nodes_are_drawn(capsys):
    attempt = {
        "attempt": 1,
        "node": "here",
        "outcome": None,
        "exit_code": None,
        "reason": None,
        "leased_at": "2027-01-31T06:30:00Z",
        "started_at": None,
        "finished_at": None,
        "usage": None,
    }
    node = {
        "id": "1",
        "name": "here",
        "status": "ready",
        "capacity": {"cpu": 2.0, "memory_mb": 4096},
        "free": {},
        "labels": {},
        "last_heartbeat_at": None,
        "tasks": 0,
    }
    worker = {**node, "name": "there", "tenant": "acme", "functions": ["shop:encode"]}
    print_attempts([attempt], NOW)
    print_nodes([node, worker], NOW)
    told = dict(node_details(worker, NOW))
    assert told["tenant"].startswith("acme") and told["functions"] == "shop:encode"
    assert "tenant" not in dict(node_details(node, NOW))
    printed = capsys.readouterr().out
    assert "running" in printed
    assert "acme" in printed
    assert "2 CPUs, 4096 MiB memory" in printed


def test_an_overridden_capacity_is_shown_with_the_one_that_the_agent_reports():
    node = {
        "id": "1",
        "name": "here",
        "status": "ready",
        "capacity": {"cpu": 1.0},
        "reported_capacity": {"cpu": 2.0},
        "free": {"cpu": 1.0},
        "labels": {},
        "last_heartbeat_at": None,
        "tasks": 0,
    }
    assert dict(node_details(node, NOW))["overrides"] == (
        "2 CPUs, as its agent reports; 'duly node update here --own' removes the override"
    )
    assert "overrides" not in dict(node_details({**node, "reported_capacity": None}, NOW))


def test_resources_are_said_as_people_say_them():
    amounts = {"cpu": 1.5, "memory_mb": 512, "disk_mb": 0, "ports": 2, "extra": {"gpu": 1}}
    assert format_resources(amounts) == "1.5 CPUs, 512 MiB memory, 2 ports, 1 gpu"
    assert format_resources({}) == "none"


def test_what_is_used_up_is_said():
    capacity = {"cpu": 2, "memory_mb": 512, "ports": 0}
    free = {"cpu": 0, "memory_mb": 256, "ports": 0}
    assert format_resources(free, capacity) == "0 CPUs, 256 MiB memory"


def whole(**audit):
    """Return the status of a Duly whose audit found this."""
    nothing = {"completed_at": None, "history_completed_at": None, "drift": [], "repaired": 0}
    return {
        "version": "1",
        "server": "server-0",
        "tenant": None,
        "tenants": None,
        "database": {"version": "18"},
        "tasks": {},
        "nodes": {},
        "capacity": {},
        "free": {},
        "leader": None,
        "time": NOW.isoformat(),
        "window_hours": 24,
        "audit": nothing | {"repaired_at": None} | audit,
    }


def audit_lines(status):
    return [
        (name, text) for name, text in status_details(status, "url") if name in ("audit", "drift")
    ]


@pytest.mark.parametrize(
    ("count", "lines"),
    [
        (0, []),
        (1, ["1 task is overdue; list them with 'duly list --overdue'"]),
        (7, ["7 tasks are overdue; list them with 'duly list --overdue'"]),
    ],
)
def test_the_status_has_a_line_about_overdue_tasks_if_there_are_any(count, lines):
    told = status_details(whole() | {"overdue": count}, "url")
    assert [text for name, text in told if name == "overdue"] == lines


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "5 min"),
        ({"overdue": True}, "5 min, exceeded"),
        ({"on_overdue": "cancel"}, "5 min; then cancelled"),
    ],
)
def test_the_delay_tolerance_tells_what_becomes_of_an_overdue_task(changes, text):
    assert dict(task_details(task(**changes), NOW))["delay tolerance"] == text


@pytest.mark.parametrize(("expected", "text"), [(None, None), (83.26, "1 min 23 s")])
def test_the_expected_run_time_is_shown_if_it_is_known(expected, text):
    shown = dict(task_details(task(expected_run_time=expected), NOW))
    assert shown.get("expected run time") == text


def test_a_clean_audit_is_one_line():
    at = (NOW - timedelta(seconds=12)).isoformat()
    assert audit_lines(whole()) == [("audit", "not yet")]
    assert audit_lines(whole(completed_at=at)) == [("audit", "clean, 12 s ago")]
    assert audit_lines(whole(completed_at=at, repaired=3)) == [
        ("audit", "clean, 12 s ago, 3 repaired in total")
    ]


def test_drift_has_a_line_for_each_kind():
    drift = [
        {"kind": "lost_task", "count": 1, "message": "Gone.", "examples": []},
        {"kind": "orphaned", "count": 7, "message": "Alone.", "examples": ["11", "12"]},
    ]
    assert audit_lines(whole(completed_at=NOW.isoformat(), drift=drift)) == [
        ("audit", "8 inconsistencies, just now"),
        ("drift", "1 lost_task: Gone.\n7 orphaned: Alone. (11, 12, …)"),
    ]


def test_one_thing_is_said_as_one():
    drift = [{"kind": "lost_task", "count": 1, "message": "Gone.", "examples": ["11"]}]
    assert audit_lines(whole(completed_at=NOW.isoformat(), drift=drift)) == [
        ("audit", "1 inconsistency, just now"),
        ("drift", "1 lost_task: Gone. (11)"),
    ]


def test_a_server_that_knows_no_audit_has_no_line():
    status = whole()
    del status["audit"]
    assert audit_lines(status) == []


@pytest.mark.parametrize(
    ("action", "details", "said"),
    [
        (
            "plan.update",
            {"burst": [3, None], "tiers": [["a"], ["a", "b"]]},
            "burst=3 → none, tiers=a → a+b",
        ),
        (
            "plan.create",
            {"grants": {"burst": 3, "tiers": ["a", "b"]}},
            "grants={burst=3, tiers=a+b}",
        ),
        ("key.create", {"scopes": ["read", "submit"]}, "scopes=read+submit"),
    ],
)
def test_the_audit_log_tells_what_was_and_what_is(action, details, said):
    entry = {"at": NOW.isoformat(), "actor": "a", "action": action, "target": "t", "tenant": None}
    assert audit_row(entry | {"details": details}, NOW)[2:] == (action, "t", "", said)
