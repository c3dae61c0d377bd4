import json
import uuid

import pytest

from tests.cli.conftest import DULY
from tests.cli.tasks.test_with_server_terminal import at_terminal
from tests.terminal import CTRL_C, CTRL_D, Terminal


@pytest.fixture
def name():
    return f"x{uuid.uuid4().hex[:10]}"


def make(server, kind, name):
    """Create what a destructive command removes, and return what selects it."""
    if kind == "task":
        server.duly("submit", "--name", name, "--in", "1h", "--", "true")
        return ("cancel", "--name", name)
    if kind == "key":
        done = server.duly("key", "create", "--name", name, "-o", "id")
        return ("key", "revoke", done.stdout.strip())
    assert server.duly(kind, "create", name).returncode == 0
    return (kind, "remove", name)


@pytest.mark.parametrize("kind", ["tenant", "plan", "key", "task"])
def test_a_destructive_command_without_a_terminal_needs_yes_and_says_what_it_did(
    server, name, kind
):
    command = make(server, kind, name)
    refused = server.duly(*command)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--yes" in refused.stderr
    done = server.duly(*command, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    said = {
        "tenant": f"Tenant {name} (ID ",
        "plan": f"Plan {name} removed.\n",
        "key": f"Key {command[-1]} (duly_",
        "task": "1 task cancelled.\n",
    }
    assert done.stdout.startswith(said[kind])


def test_a_destructive_command_asks_at_a_terminal(server, name):
    make(server, "tenant", name)
    code, shown = at_terminal(server, "tenant", "remove", name, types="n\n")
    assert code == 1
    assert f"Remove the tenant {name} for good, with all of its keys" in shown
    assert "Nothing was changed." in shown
    assert server.duly("tenant", "show", name).returncode == 0
    code, shown = at_terminal(server, "tenant", "remove", name, types="y\n")
    assert (code, f"Tenant {name} (ID " in shown) == (0, True)
    assert server.duly("tenant", "show", name).returncode == 1
    assert server.duly("tenant", "create", name).returncode == 0


def test_the_removal_of_a_node_needs_confirmation(server):
    node = json.loads(server.duly("node", "list", "-o", "json").stdout)["items"][0]
    refused = server.duly("node", "remove", node["name"])
    assert refused.returncode == 2
    assert f"Remove the node {node['name']} for good" in refused.stderr.replace("\n", " ")
    code, shown = at_terminal(server, "node", "remove", node["name"], types="n\n")
    assert (code, "Nothing was changed." in shown) == (1, True)
    assert server.duly("node", "show", node["name"]).returncode == 0


@pytest.mark.parametrize(("key", "code"), [(CTRL_C, 130), (CTRL_D, 1)])
def test_a_question_that_is_not_answered_changes_nothing(server, name, key, code):
    make(server, "tenant", name)
    terminal = Terminal([DULY, "tenant", "remove", name], server.environment)
    try:
        terminal.wait_for(r"for good, .*\[y/N\]: ")
        terminal.press_when_read(key)
        assert terminal.end()[0] == code
    finally:
        terminal.close()
    assert terminal.shown.endswith("\nNothing was changed.\n")
    assert server.duly("tenant", "show", name).returncode == 0


def test_ctrl_c_at_the_prompt_for_a_password_changes_nothing(server, name):
    terminal = Terminal([DULY, "user", "create", name, "--password"], server.environment)
    try:
        terminal.wait_for("New password: ")
        terminal.press_when_read(CTRL_C)
        assert terminal.end()[0] == 130
    finally:
        terminal.close()
    assert terminal.shown.endswith("\nNothing was changed.\n")
    assert server.duly("user", "show", name).returncode == 1


def test_cancel_without_an_id_names_the_task_and_asks_at_a_terminal(server, name):
    task = server.duly("submit", "--name", name, "--in", "1h", "-o", "id", "--", "true")
    task_id = task.stdout.strip()
    code, shown = at_terminal(server, "cancel", types="n\n")
    assert code == 1
    assert f"Cancel the last task, {task_id} ({name}), which is scheduled?" in shown
    assert json.loads(server.duly("show", task_id, "-o", "json").stdout)["status"] == "scheduled"
    done = server.duly("cancel")
    assert (done.returncode, done.stdout) == (0, f"Task {task_id} cancelled.\n")
    assert f"{task_id} ({name})" in done.stderr
