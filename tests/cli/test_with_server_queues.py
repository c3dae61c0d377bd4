"""`duly queue`, as an administrator uses it, and what becomes of tasks."""

import pytest

from tests.cli.tasks.test_with_server_tasks import answer, submit
from tests.launch.running_up import until


@pytest.fixture
def reports(server):
    """A queue for one test."""
    made = server.duly("queue", "create", "reports", "--level", "45")
    assert made.returncode == 0, made.stderr
    yield "reports"
    removed = server.duly("queue", "remove", "reports", "--yes")
    assert (removed.returncode, removed.stdout) == (0, "Queue reports removed.\n"), removed.stderr


def why(server, task):
    return answer(server, "why", task)["code"]


def test_a_paused_queue_starts_nothing_until_it_is_resumed(server, reports):
    paused = server.duly("queue", "pause", reports)
    assert (paused.returncode, "paused by" in paused.stdout) == (0, True)
    assert "(now)" in paused.stdout or "s ago)" in paused.stdout
    task = submit(server, "--queue", reports, "--delay-tolerance", "0s", "--", "true")
    # What was submitted later has started: the task was considered, too.
    assert server.duly("run", "--", "true").returncode == 0
    assert (why(server, task), answer(server, "show", task)["status"]) == (
        "queue_paused",
        "waiting",
    )
    assert "duly queue resume reports" in server.duly("why", task).stdout
    (row,) = [line for line in server.duly("queue", "list").stdout.splitlines() if reports in line]
    assert row.split()[:3] == [reports, "45", "paused"]
    assert server.duly("queue", "resume", reports).returncode == 0
    assert server.duly("wait", task).returncode == 0


def test_a_queue_holds_no_more_than_its_share(mortal_up):
    # On a server of its own: it needs the whole node.
    server, reports = mortal_up.server, "reports"
    assert server.duly("queue", "create", reports, "--level", "45").returncode == 0
    (node,) = answer(server, "node", "list")["items"]
    half = ("--cpu", str(node["capacity"]["cpu"] / 2))
    updated = server.duly("queue", "update", reports, "--max-share", "50%")
    assert (updated.returncode, "50 %" in updated.stdout) == (0, True), updated.stderr
    first = submit(server, "--queue", reports, *half, "--", "sleep", "600")
    until(lambda: answer(server, "show", first)["status"] == "running", "the task to start")
    second = submit(server, "--queue", reports, *half, "--", "true")
    assert server.duly("run", *half, "--", "true").returncode == 0
    assert why(server, second) == "queue_limit"
    assert server.duly("cancel", first).returncode == 0
    assert server.duly("wait", second).returncode == 0
    until(lambda: answer(server, "show", first)["status"] == "cancelled", "the task to end")


def test_a_failed_task_is_retried_in_a_higher_queue(server, reports):
    retry = ("--max-attempts", "2", "--retry-delay", "1h", "--retry-max-delay", "1h")
    task = submit(server, "--queue", reports, *retry, "--", "false")
    until(lambda: why(server, task) == "retry_backoff", "the first attempt to fail")
    assert answer(server, "show", task)["queue"] == "delayable"
    assert server.duly("cancel", task).returncode == 0


def test_a_queue_has_hours_in_a_time_zone_until_they_are_removed(server, reports):
    hours = ("--hours", "22:00-06:00", "--timezone", "Europe/Berlin")
    assert server.duly("queue", "update", reports, *hours).returncode == 0
    shown = answer(server, "queue", "show", reports)
    assert (shown["hours"], shown["timezone"]) == ("22:00-06:00", "Europe/Berlin")
    assert server.duly("queue", "update", reports, "--hours", "none").returncode == 0
    assert answer(server, "queue", "show", reports)["hours"] is None


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("create", "x", "--level", "0"), "--level: 0 is not a number from 1 to 99."),
        (
            ("create", "x", "--level", "5", "--hours", "9-5"),
            "--hours: '9-5' is not a daily window.",
        ),
        (("update", "urgent", "--max-share", "x"), "--max-share: 'x' is not a share of the fleet."),
        (("update", "urgent"), "There is nothing to change."),
        (("remove", "urgent"), "Give --yes to confirm."),
        (("remove", "urgent", "--yes"), "The queue 'urgent' is built in and cannot be removed."),
        (("pause", "gone"), "There is no queue 'gone'."),
    ],
)
def test_mistakes_are_told_by_their_flag(server, args, words):
    refused = server.duly("queue", *args)
    assert (refused.returncode != 0, words in refused.stderr) == (True, True), refused.stderr
