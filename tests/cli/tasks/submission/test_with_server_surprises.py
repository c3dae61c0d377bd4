import json
import re
import uuid

import pytest


@pytest.fixture
def name():
    return f"x{uuid.uuid4().hex[:10]}"


def test_a_repeated_idempotency_key_is_said(server, name):
    command = ("submit", "--idempotency-key", name, "--wait", "--", "true")
    first = server.duly(*command).stdout.split()[1]
    again = server.duly(*command)
    assert (again.returncode, again.stdout) == (
        0,
        f"Task {first} has this idempotency key already; it is done. Nothing was submitted.\n",
    )
    machine = server.duly("submit", "-o", "id", *command[1:])
    assert (machine.stdout.strip(), "has this idempotency key already" in machine.stderr) == (
        first,
        True,
    )


@pytest.mark.parametrize(
    ("manifest", "what"),
    [
        ("tasks: {a: {run: 'true'}}", r"Graph \d+ has"),
        ("[{run: 'true'}, {run: 'true'}]", r"2 tasks from \d+ to \d+ have"),
        ("run: 'true'", r"Task \d+ has"),
    ],
)
def test_a_repeated_idempotency_key_of_a_file_is_said(server, name, tmp_path, manifest, what):
    file = tmp_path / "file.yaml"
    file.write_text(manifest)
    command = ("submit", "-f", str(file), "--idempotency-key", name)
    assert " submitted" in server.duly(*command).stdout
    again = server.duly(*command)
    said = again.stdout + again.stderr
    assert re.fullmatch(f"{what} this idempotency key already.* Nothing was submitted.\n", said)
    machine = server.duly(*command, "-o", "id")
    assert machine.stdout
    assert "Nothing was submitted." in machine.stderr


def test_a_time_in_the_past_is_said_and_does_not_hinder(server):
    done = server.duly("run", "--at", "2020-01-01T06:30", "--", "true")
    assert done.returncode == 0
    assert "--at: 2020-01-01 06:30:00 (" in done.stderr


def test_a_task_that_no_node_can_fit_is_said_at_once(server):
    done = server.duly("submit", "--cpu", "4000", "--", "true")
    assert done.returncode == 0
    assert done.stdout.startswith("Task ")
    assert "No node is large enough: it needs 4000 CPUs; the largest node has " in done.stderr


def test_output_beyond_the_limit_is_said_where_the_output_is_redirected(server):
    script = "head -c 11000000 /dev/zero | tr '\\0' x"
    done = server.duly("run", "--", "sh", "-c", script)
    assert done.returncode == 0
    assert "The output is longer than the limit" in done.stderr
    for command in (("logs",), ("logs", "--follow")):
        assert "The output is longer than the limit" in server.duly(*command).stderr


def test_the_values_of_environment_variables_are_hidden_unless_asked_for(server):
    server.duly("submit", "--env", "TOKEN=s3cret", "--in", "1h", "--", "true")
    shown = server.duly("show").stdout
    assert ("TOKEN" in shown, "s3cret" in shown) == (True, False)
    assert "TOKEN=s3cret" in server.duly("show", "--show-env").stdout
    hidden = json.loads(server.duly("show", "-o", "json").stdout)
    assert hidden["env"] == {"TOKEN": "(hidden)"}
    told = json.loads(server.duly("show", "-o", "json", "--show-env").stdout)
    assert told["env"] == {"TOKEN": "s3cret"}


def test_that_there_are_more_is_not_part_of_the_output(server, name):
    for _ in range(2):
        server.duly("submit", "--name", name, "--in", "1h", "--", "true")
    done = server.duly("list", "--name", name, "--limit", "1")
    assert ("There are more" in done.stdout, "There are more" in done.stderr) == (False, True)
    keys = server.duly("key", "list", "--all", "--limit", "1")
    assert "There are more" not in keys.stdout


def complete(server, *words):
    """Return what a shell would offer for the last of the words."""
    env = {
        **server.environment,
        "_DULY_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("duly", *words)),
        "COMP_CWORD": str(len(words)),
    }
    return server.duly(env=env).stdout.split()


def test_statuses_nodes_schedules_and_recent_ids_are_completed(server, name):
    assert complete(server, "list", "--status", "wa") == ["waiting"]
    assert complete(server, "list", "--status", "done,fa") == ["done,failed"]
    node = json.loads(server.duly("node", "list", "-o", "json").stdout)["items"][0]
    assert complete(server, "node", "show", node["name"][:2]) == [node["name"]]
    server.duly("schedule", "create", name, "--every", "5h", "--", "true")
    assert complete(server, "schedule", "show", name[:6]) == [name]
    task = server.duly("submit", "-o", "id", "--in", "1h", "--", "true").stdout.strip()
    assert complete(server, "show", task[:-1])[0] == task
