import json
import uuid

import pytest


@pytest.fixture
def name():
    return f"x{uuid.uuid4().hex[:10]}"


def submit(server, *args, env=None):
    options = {} if env is None else {"env": env}
    done = server.duly("submit", "-o", "id", *args, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("command", ["show", "why", "logs", "attempts", "wait", "result", "graph"])
def test_a_name_stands_for_its_latest_task_where_tasks_are_read(server, name, command):
    submit(server, "--name", name, "--wait", "--", "true")
    latest = submit(server, "--name", name, "--wait", "--", "true")
    done = server.duly(command, name)
    assert done.returncode == 0
    assert f"{name!r} is task {latest}, the latest of that name" in done.stderr


@pytest.mark.parametrize("command", ["cancel", "pause", "resume"])
def test_a_name_never_selects_a_task_that_is_changed(server, name, command):
    task = submit(server, "--name", name, "--in", "1h", "--", "true")
    done = server.duly(command, name)
    assert (done.returncode, done.stdout) == (1, "")
    assert "A task to change is given by its ID" in done.stderr
    assert json.loads(server.duly("show", task, "-o", "json").stdout)["status"] == "scheduled"


def test_an_unknown_name_is_reported_with_what_to_do(server, name):
    done = server.duly("show", name)
    assert (done.returncode, f"There is no task '{name}'" in done.stderr) == (1, True)


def test_the_last_task_belongs_to_the_key(server, name):
    other = server.duly(
        "key", "create", "--user", "admin", "--name", name, "--expires", "1h"
    ).stdout.strip()
    theirs = {**server.environment, "DULY_URL": server.url, "DULY_KEY": other}
    ours = submit(server, "--wait", "--", "echo", "ours")
    assert "with this key" in server.duly("show", env=theirs).stderr
    submit(server, "--wait", "--", "echo", "theirs", env=theirs)
    assert server.duly("logs").stdout == "ours\n"
    assert server.duly("show", "-o", "id").stdout.strip() == ours
    assert server.duly("logs", env=theirs).stdout == "theirs\n"


def test_wait_takes_several_tasks_and_exits_with_the_first_failure(server):
    good = submit(server, "--", "true")
    bad = submit(server, "--max-attempts", "1", "--", "sh", "-c", "exit 7")
    done = server.duly("wait", good, bad, "-o", "jsonl")
    assert done.returncode == 7
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [good, bad]
    assert f"{good}: done" in done.stderr
    assert f"{bad}: failed" in done.stderr
    assert server.duly("wait", good, good).returncode == 0


def test_wait_finds_a_mistyped_id_before_it_waits(server):
    later = submit(server, "--in", "1h", "--", "true")
    assert server.duly("wait", later, "12345").returncode == 125
    timed = server.duly("wait", later, later, "--timeout", "100ms")
    assert (timed.returncode, "still scheduled" in timed.stderr) == (125, True)


def test_why_explains_several_tasks(server):
    ids = [submit(server, "--in", "1h", "--", "true") for _ in range(2)]
    lines = server.duly("why", *ids).stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ids
    items = json.loads(server.duly("why", *ids, "-o", "json").stdout)["items"]
    assert [item["task"] for item in items] == ids


def test_schedules_and_graphs_are_selected_by_name(server, name, tmp_path):
    created = server.duly("schedule", "create", name, "--every", "5h", "--", "echo", "hi")
    assert created.returncode == 0, created.stderr
    shown = json.loads(server.duly("schedule", "show", name, "-o", "json").stdout)
    assert (shown["name"], shown["every"], shown["task"]["command"]) == (
        name,
        18000,
        ["echo", "hi"],
    )
    for command in ("pause", "resume", "run", "next", "history", "remove"):
        assert server.duly("schedule", command, name).returncode == 0, command
    manifest = tmp_path / "graph.yaml"
    manifest.write_text(f"name: {name}\ntasks:\n  a: {{command: ['true'], run_at: 2199-01-01}}\n")
    manifest.write_text(
        f"name: {name}\ntasks:\n"
        "  a: {command: ['true'], run_at: '2199-01-01T00:00:00Z'}\n"
        "  b: {command: ['true'], depends_on: [a]}\n"
    )
    assert server.duly("submit", "-f", str(manifest)).returncode == 0
    assert name in server.duly("graph", name).stdout
    assert f"2 tasks of graph {name} cancelled." in server.duly("cancel", "--graph", name).stdout


def test_the_name_of_a_schedule_is_given_once(server, name):
    done = server.duly("schedule", "create", name, "--name", "b", "--every", "5m", "--", "true")
    assert (done.returncode, "given twice" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        ("key", "create"),
        ("node", "token", "create"),
        ("resources", "reserve", "--cpu", "0.001"),
    ],
)
def test_what_expires_has_one_flag_for_it(server, command):
    assert server.duly(*command, "--expires", "1s").returncode == 0
