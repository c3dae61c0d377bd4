"""Limits of what tasks call from the command line, and real tasks under them."""

import json
import shutil
import time

import pytest

from duly.client.sync import Client

SMALL = {"cpu": 0.01, "memory_mb": 16, "disk_mb": 16}
NOTE = "date +%s.%N; sleep 0.2; date +%s.%N"
"""Prints when it began and when it ended."""


@pytest.fixture
def limited(server):
    """Set limits of keys, which are gone after the test."""
    made = []

    def put(key, *flags):
        said = server.duly("downstream", "set", key, *flags, "-o", "json")
        assert (said.returncode, said.stderr) == (0, "")
        made.append((key, "--everyone") if "--everyone" in flags else (key,))
        return json.loads(said.stdout)

    yield put
    for flags in made:
        server.duly("downstream", "remove", *flags)


def spans(client, ids):
    """Return when each task began and ended, once all are done."""
    tasks = [client.wait(id_, timeout=90) for id_ in ids]
    assert [task["status"] for task in tasks] == ["done"] * len(ids)
    return sorted(tuple(map(float, client.read_logs(id_).split())) for id_ in ids)


def most_at_once(spans):
    return max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)


def submit(client, key, count, script=NOTE, **fields):
    task = {"command": ["sh", "-c", script], "uses": [key], "resources": SMALL, **fields}
    return client.submit_many([task] * count)


def test_limits_are_set_listed_and_removed(server):
    assert server.duly("downstream", "set", "api", "--rate", "100/s").returncode == 0
    table = server.duly("downstream", "list").stdout
    assert "100/s" in table and "no limit" in table and "tenant" in table
    assert server.duly("downstream", "list", "-o", "id").stdout.split() == ["api"]
    assert server.duly("downstream", "remove", "api").stdout == "Downstream api removed.\n"
    assert server.duly("downstream", "remove", "api").returncode == 1


def test_wrong_limits_are_refused_with_a_hint(server):
    wrong = server.duly("downstream", "set", "api", "--rate", "fast")
    assert wrong.returncode != 0
    assert "'fast' is not a rate. Try 100/s, 30/m or 1000/h." in wrong.stderr
    assert server.duly("downstream", "set", "api").returncode == 2


def test_of_twenty_real_tasks_no_more_than_two_run_at_once(server, limited):
    limited("two", "--concurrency", "2")
    with server.client() as client:
        assert most_at_once(spans(client, submit(client, "two", 20))) == 2


def test_real_tasks_start_at_the_rate(server, limited):
    limited("slow", "--rate", "5/s")
    with server.client() as client:
        began = [first for first, _ in spans(client, submit(client, "slow", 10))]
    assert began[-1] - began[0] >= 9 / 5 - 0.5


def test_tenants_share_a_limit_and_both_go_on(server, limited):
    limited("shared", "--concurrency", "2", "--everyone")
    with server.client() as client:
        client.create_tenant("sharing", "unlimited")
        key = client.create_key(["submit", "read"], tenant="sharing", service="sharing")["key"]
        with Client(server.url, key) as other:
            ours, theirs = submit(client, "shared", 6), submit(other, "shared", 3)
            assert most_at_once(spans(client, ours) + spans(other, theirs)) == 2
        client.remove_tenant("sharing")


def test_exit_code_75_halves_the_limit_and_the_task_is_tried_again(server, limited):
    limited("fragile", "--concurrency", "8")
    script = 'if [ "$DULY_ATTEMPT" = 1 ]; then exit 75; fi'
    with server.client() as client:
        [task] = submit(client, "fragile", 1, script, max_attempts=1)
        done = client.wait(task, timeout=90)
        assert (done["status"], done["failures"], done["attempt"]) == ("done", 0, 2)
        first, _ = client.list_attempts(task)
        assert (first["outcome"], first["reason"]["code"]) == ("failed", "throttled")
        [item] = [i for i in client.list_downstreams()["items"] if i["key"] == "fragile"]
    assert item["current_concurrency"] == 4
    assert item["throttled_at"] is not None


@pytest.mark.skipif(shutil.which("perl") is None, reason="the task here speaks Perl")
def test_a_task_reports_throttling_while_it_runs(server, limited):
    limited("polite", "--concurrency", "8")
    talk = (
        "perl -e 'use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new($ENV{DULY_SOCKET});"
        'print $s qq({"throttled": "polite", "retry_after": 30}\\n); $s->flush;'
        "print scalar <$s>;'; sleep 60"
    )
    with server.client() as client:
        [task] = submit(client, "polite", 1, talk)
        deadline = time.monotonic() + 30
        item = {"throttled_at": None}
        while item["throttled_at"] is None and time.monotonic() < deadline:
            [item] = [i for i in client.list_downstreams()["items"] if i["key"] == "polite"]
        assert item["current_concurrency"] == 4
        [waiting] = submit(client, "polite", 1)
        reason = client.explain(waiting)
        assert reason["code"] == "downstream_limit"
        assert reason["details"]["until"] is not None
        for id_ in (task, waiting):
            client.cancel_task(id_)
