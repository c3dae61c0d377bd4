"""What the overview shows, from answers of the API."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from duly.dashboard import view
from duly.dashboard.view import Bar, NodeView

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def at(seconds):
    return (NOW + timedelta(seconds=seconds)).isoformat()


def task(**fields):
    return {
        "id": "7251039274172416",
        "name": "encode",
        "status": "waiting",
        "tenant": "acme",
        "user": "kim",
        "submitted_at": at(-90),
        "ready_at": at(-60),
        "start_by": at(240),
        "started_at": None,
        "finished_at": None,
        "attempt": 0,
        "failures": 0,
        "losses": 0,
        "max_attempts": 3,
        "tier": "basic",
        "resources": resources(cpu=0.5, memory_mb=256, disk_mb=512),
        "execution_cap": 600.0,
        "delay_tolerance": 300.0,
        "node": None,
        "exit_code": None,
        "outcome": None,
        "reason": None,
        "ref": None,
        "labels": {},
        "requires": {},
        "replay_of": None,
        "usage": None,
    } | fields


def resources(**amounts):
    nothing = {"cpu": 0, "memory_mb": 0, "disk_mb": 0, "iops": 0, "bandwidth_mbps": 0, "ports": 0}
    return nothing | {"extra": {}} | amounts


def test_a_waiting_task_has_waited_until_now():
    row = view.task_row(task(reason={"code": "no_capacity", "message": "No.", "details": {}}), NOW)
    assert row == {
        "id": "7251039274172416",
        "status": "waiting",
        "name": "encode",
        "owner": "acme / kim",
        "waited": "1 min",
        "ran": view.NOTHING,
        "node": view.NOTHING,
        "reason": "no_capacity",
    }


def test_a_running_task_has_run_until_now_and_a_done_one_until_its_end():
    running = view.task_row(task(status="running", started_at=at(-20)), NOW)
    done = view.task_row(task(status="done", started_at=at(-20), finished_at=at(-5)), NOW)
    assert (running["waited"], running["ran"]) == ("40 s", "20 s")
    assert (done["waited"], done["ran"]) == ("40 s", "15 s")


def test_a_task_that_was_cancelled_before_its_start_waits_no_longer():
    row = view.task_row(task(status="cancelled", finished_at=at(-30)), NOW)
    assert (row["waited"], row["ran"]) == ("30 s", view.NOTHING)


def test_a_task_whose_time_has_not_come_does_not_wait_yet():
    row = view.task_row(task(status="scheduled", ready_at=at(60)), NOW)
    assert (row["waited"], row["reason"]) == (view.NOTHING, "Not before 2026-11-15 12:01:00 UTC.")


def test_a_clock_that_differs_gives_no_negative_time():
    assert view.span(at(10), None, NOW) == "0.0 s"


def test_a_node_has_a_bar_for_what_it_has():
    node = {
        "name": "laptop",
        "status": "ready",
        "tasks": 1,
        "last_heartbeat_at": at(-1),
        "capacity": resources(cpu=2, memory_mb=2048, extra={"gpu": 2}),
        "free": resources(cpu=0.5, memory_mb=2048, extra={"gpu": 0}),
    }
    assert view.node_view(node) == NodeView(
        "laptop",
        "ready",
        "1 task",
        (
            Bar("cpu", 0.75, "1.5 of 2"),
            Bar("memory", 0.0, "0 MiB of 2.0 GiB"),
            Bar("gpu", 1.0, "2 of 2"),
        ),
    )


def test_a_lost_node_offers_nothing():
    node = {
        "name": "old",
        "status": "lost",
        "tasks": 0,
        "last_heartbeat_at": at(-60),
        "capacity": resources(cpu=2),
        "free": resources(cpu=2),
    }
    note = "last heard of at 2026-11-15 11:59:00 UTC"
    assert view.node_view(node) == NodeView("old", "lost", note, ())


def test_details_leave_out_what_is_not_known():
    facts = dict(view.task_facts(task(labels={"photo": "17"}, queue="off_peak")))
    assert facts["Resources"] == "0.5 cpu, 256 MiB memory, 512 MiB disk (basic)"
    assert facts["Queue"] == "off_peak"
    assert facts["Labels"] == "photo=17"
    assert "Exit code" not in facts
    assert "Started" not in facts


def test_the_command_is_shown_as_one_would_type_it():
    typed = view.command(task(command=["sh", "-c", "echo 'hi'; exit 3"]))
    assert typed == """sh -c 'echo '"'"'hi'"'"'; exit 3'"""
    assert view.command(task(command=["x" * 500])) == "x" * 300 + " …"
    assert view.command(task(command=None, source="#!/bin/sh\n")) == "a script that was sent along"


def test_a_count_that_was_cut_off_says_so():
    assert [view.count(n) for n in (0, 1204, 100_000)] == ["0", "1,204", "100,000+"]


def test_an_exit_code_of_zero_is_known():
    assert dict(view.task_facts(task(exit_code=0)))["Exit code"] == "0"


def test_progress_is_shown_while_a_task_tells_it():
    progress = {"fraction": 0.4, "text": "page 4", "at": "2027-01-31T12:00:00Z"}
    assert dict(view.task_facts(task(progress=progress)))["Progress"] == "40%: page 4"
    assert "Progress" not in dict(view.task_facts(task()))


def test_direction_changing_and_control_characters_are_written_out():
    assert view.visible("photo\u202egpj.exe\x1b[2J\n") == "photo\\u202egpj.exe\\x1b[2J\\n"
    assert view.visible("日本語 👩\u200d👩\u200d👧 نص") == "日本語 👩\u200d👩\u200d👧 نص"


def test_a_log_keeps_its_lines_and_loses_its_colours():
    log = "one\r\n\x1b[31mred\x1b[0m\x1b]0;title\x07\ta\x00\n"
    assert view.log_text(log) == "one\nred    a\\x00\n"


def test_drift_is_said_in_one_sentence_and_nothing_if_there_is_none():
    drift = [{"kind": "lost_task", "count": 1}, {"kind": "orphaned", "count": 7}]
    assert view.drift({"drift": drift}) == (
        "The audit has found inconsistencies: 1 lost_task, 7 orphaned. See 'duly status'."
    )
    assert view.drift({"drift": []}) == view.drift(None) == ""


@given(st.text())
def test_nothing_that_a_tenant_writes_stays_invisible(text):
    shown = view.visible(text)
    assert all(character.isprintable() or character in view.JOINERS + " \u3000" or
               character.isspace() for character in shown)  # fmt: skip
    assert "\n" not in shown
    assert "\u202e" not in shown


def test_a_task_without_a_name_is_shown_by_its_ref():
    assert view.task_row(task(name=None, ref="thumbs"), NOW)["name"] == "thumbs"


def test_a_task_that_has_ended_has_no_time_to_start_by():
    assert "Start by" in dict(view.task_facts(task()))
    ended = task(status="failed", finished_at="2026-11-15T12:00:30Z")
    assert "Start by" not in dict(view.task_facts(ended))
