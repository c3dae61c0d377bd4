"""Looking at tasks and changing them, as a user does."""

import csv
import io
import json
import re
import subprocess
import uuid

import pytest

from tests.cli.conftest import DULY
from tests.cli.imports import HEAVY, imported_by


def submit(server, *args: str) -> str:
    done = server.duly("submit", "-o", "id", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ended(server, *args: str) -> str:
    task = submit(server, *args)
    server.duly("wait", task)
    return task


def answer(server, *args: str):
    done = server.duly(*args, "--output", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def label() -> str:
    return f"test={uuid.uuid4().hex}"


def test_the_last_task_needs_no_id(server):
    task = submit(server, "--", "sh", "-c", 'echo said; echo "[1]" > "$DULY_RESULT"')
    assert server.duly("wait").returncode == 0
    assert answer(server, "show")["id"] == task
    assert server.duly("logs").stdout == "said\n"
    assert answer(server, "result") == [1]
    assert answer(server, "attempts")["items"][0]["outcome"] == "succeeded"
    assert answer(server, "why")["code"]
    assert "DULY_RESULT" in server.duly("show").stdout


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("echo no > $DULY_RESULT", "Done, but its result was not kept: it is not JSON ("),
        ("head -c 300000 /dev/zero > $DULY_RESULT", "not kept: it has more than 256 KiB."),
        ("ln -sf /etc/hostname $DULY_RESULT", "not kept: it is not a readable regular file."),
        ("true", "The task has no result, or its result is null."),
    ],
)
def test_why_there_is_no_result_is_said_beside_it(server, does, told):
    submit(server, "--attempts", "1", "--", "sh", "-c", does)
    server.duly("wait")
    done = server.duly("result")
    assert (done.returncode, done.stdout) == (0, "null\n")
    assert told in done.stderr


def test_an_id_that_does_not_exist_is_refused(server):
    for command in ("show", "logs", "attempts", "why", "result", "cancel", "replay"):
        done = server.duly(command, "12345")
        assert (done.returncode, done.stdout) == (1, "")
        assert "12345" in done.stderr
    assert server.duly("wait", "12345").returncode == 125


def test_lists_are_filtered_and_paged(server, label):
    ids = [submit(server, "--in", "1h", "--label", label, "--", "true") for _ in range(3)]
    newest_first = ids[::-1]
    page = answer(server, "list", "--label", label, "--limit", "2")
    assert [task["id"] for task in page["items"]] == newest_first[:2]
    rest = answer(server, "list", "--label", label, "--cursor", page["next_cursor"])
    assert [task["id"] for task in rest["items"]] == newest_first[2:]
    done = server.duly("list", "--label", label, "--all", "--status", "scheduled", "-o", "id")
    assert done.stdout.split() == newest_first
    assert server.duly("list", "--label", label, "--status", "done").stdout == "No tasks match.\n"
    assert server.duly("list", "--label", label, "--since", "1h", "-o", "id").stdout.split()
    assert server.duly("cancel", "--label", label, "--yes").stdout == "3 tasks cancelled.\n"


def test_a_list_has_a_form_for_every_reader(server, label):
    name = '[bold]"ü",\x1b[31m'
    task = ended(server, "--name", name, "--label", label, "--", "true")
    lines = server.duly("list", "--label", label, "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == [name]
    (row,) = csv.DictReader(io.StringIO(server.duly("list", "--label", label, "-o", "csv").stdout))
    assert (row["id"], row["name"], row["status"]) == (task, name, "done")
    table = server.duly("list", "--label", label).stdout
    assert '[bold]"ü"' in table
    assert "\x1b" not in table


def test_a_task_that_waits_can_be_changed(server):
    task = submit(server, "--in", "1h", "--", "true")
    done = server.duly("update", task, "--priority", "7", "--name", "later", "--cap", "2m")
    assert done.returncode == 0, done.stderr
    found = answer(server, "show", task)
    assert (found["priority"], found["name"], found["execution_cap"]) == (7, "later", 120.0)
    assert server.duly("cancel", task).stdout == f"Task {task} cancelled.\n"
    refused = server.duly("update", task, "--priority", "8")
    assert refused.returncode == 1
    assert "cancelled" in refused.stderr


def test_one_task_that_cannot_be_cancelled_does_not_keep_the_others(server):
    task = submit(server, "--in", "1h", "--", "true")
    done = server.duly("cancel", "12345", task)
    assert (done.returncode, done.stdout) == (1, f"Task {task} cancelled.\n")


def test_tasks_are_paused_and_resumed_by_their_ids(server):
    ids = [submit(server, "--in", "1h", "--", "true") for _ in range(2)]
    paused = server.duly("pause", *ids, "12345")
    assert (paused.returncode, paused.stdout) == (
        1,
        f"Task {ids[0]} paused.\nTask {ids[1]} paused.\n",
    )
    assert "There is no task '12345'." in paused.stderr
    listed = server.duly("list", "--status", "paused", "-o", "id").stdout.split()
    assert set(ids) <= set(listed)
    assert f"Resume it with 'duly resume {ids[0]}'." in server.duly("why", ids[0]).stdout
    assert server.duly("update", ids[0], "--priority", "3").returncode == 0
    resumed = server.duly("resume", ids[0]).stdout
    assert resumed == f"Task {ids[0]} resumed; it is scheduled.\n"
    assert server.duly("resume", ids[0]).stdout == resumed
    assert answer(server, "resume")["status"] == "scheduled"  # the last one submitted
    server.duly("cancel", *ids)
    refused = server.duly("pause", ids[0])
    assert (refused.returncode, "nothing left to pause" in refused.stderr) == (1, True)
    assert server.duly("pause", "--graph", "1", ids[0]).returncode == 2


def test_tasks_are_paused_and_resumed_by_what_they_are(server, label):
    for _ in range(2):
        submit(server, "--in", "1h", "--label", label, "--", "true")
    assert server.duly("pause", "--label", label).stdout == "2 tasks paused.\n"
    assert answer(server, "resume", "--status", "paused", "--label", label) == {"resumed": 2}
    assert server.duly("resume", "--label", label, "12345").returncode == 2
    assert server.duly("cancel", "--label", label, "--yes").stdout == "2 tasks cancelled.\n"


def test_the_same_key_is_the_same_task(server):
    key = uuid.uuid4().hex
    ids = {submit(server, "--idempotency-key", key, "--", "true") for _ in range(2)}
    assert len(ids) == 1
    refused = server.duly("submit", "--idempotency-key", key, "--", "false")
    assert refused.returncode == 1


def test_a_refusal_of_the_server_names_the_field(server):
    done = server.duly("submit", "--tier", "golden", "--", "true")
    assert done.returncode == 1
    assert "golden" in done.stderr


def test_a_replay_is_a_new_task_linked_to_the_old(server):
    old = ended(server, "--", "true")
    new = answer(server, "replay", old)
    assert (new["replay_of"], new["id"] != old) == (old, True)
    assert server.duly("wait").returncode == 0


def test_dead_letters_can_be_looked_at_replayed_and_dropped(server):
    task = ended(server, "--attempts", "1", "--", "sh", "-c", "echo last words; exit 9")
    assert task in server.duly("dead", "list", "-o", "id").stdout.split()
    shown = server.duly("dead", "show", task).stdout
    assert "last words" in shown
    assert "failed" in shown
    replayed = answer(server, "dead", "replay", task)
    assert replayed["replay_of"] == task
    server.duly("wait", replayed["id"])
    assert server.duly("dead", "drop", replayed["id"]).stdout == (
        f"Task {replayed['id']} dropped from the dead letters.\n"
    )
    assert server.duly("dead", "show", replayed["id"]).returncode == 1


def test_dead_letters_are_replayed_and_dropped_with_one_json_value(server):
    tasks = [ended(server, "--attempts", "1", "--", "sh", "-c", "exit 9") for _ in range(2)]
    replayed = answer(server, "dead", "replay", *tasks)
    assert [task["replay_of"] for task in replayed["items"]] == tasks
    letters = [task["id"] for task in replayed["items"]]
    server.duly("wait", *letters)
    assert answer(server, "dead", "drop", *letters)["items"] == [{"id": each} for each in letters]


def full(server, *args):
    """Run a command whose output goes to a full disk."""
    with open("/dev/full", "w") as disk:  # noqa: PTH123
        return subprocess.run(
            [DULY, *args], env=server.environment, stdout=disk, stderr=subprocess.PIPE, text=True
        )


def test_output_to_a_full_disk_is_one_sentence_and_the_task_is_named(server):
    problem = "The output cannot be written: No space left on device."
    assert full(server, "list").stderr == f"duly: {problem}\n"
    for output in ("table", "id"):
        done = full(server, "submit", "-o", output, "--", "true")
        assert done.returncode == 1
        assert re.fullmatch(rf"Task \d+ submitted\.\nduly: {problem}\n", done.stderr)
    done = full(server, "run", "--", "sh", "-c", "echo hi; sleep 60")
    assert done.returncode == 125
    task = re.search(rf"duly: {problem} Task (\d+) is cancelled\.\n$", done.stderr)[1]
    server.duly("wait", task)
    assert answer(server, "show", task)["status"] == "cancelled"


def test_the_servers_are_listed_with_what_they_lead(server):
    (one,) = answer(server, "server", "list")["items"]
    assert [duty["name"] for duty in one["duties"]] == ["scheduling"]
    assert f"scheduling (term {one['duties'][0]['term']})" in server.duly("server", "list").stdout
    assert server.duly("server", "list", "--output", "id").stdout == f"{one['id']}\n"


def test_nodes_are_drained_and_come_back(server):
    (node,) = answer(server, "node", "list")["items"]
    assert answer(server, "node", "drain", node["id"])["status"] in ("draining", "drained")
    assert answer(server, "node", "undrain", node["name"])["status"] == "ready"
    assert node["name"] in server.duly("node", "show", node["id"]).stdout


def test_the_status_tells_the_whole(server):
    assert answer(server, "status")["nodes"]["ready"] == 1
    assert "1 ready" in server.duly("status").stdout


def test_a_join_token_is_made_for_an_agent(server):
    made = answer(server, "node", "token", "create", "--expires", "5m")
    assert made["token"]
    assert made["uses"] == 1
    for uses in (3, "unlimited"):
        made = answer(server, "node", "token", "create", "--uses", str(uses))
        assert made["uses"] == uses
    assert made["expires_at"]


def test_a_key_that_is_not_known_is_refused_with_what_to_do(server):
    wrong = {**server.environment, "DULY_URL": server.url, "DULY_KEY": "wrong"}
    done = server.duly("status", env=wrong)
    assert done.returncode == 1
    assert "DULY_KEY" in done.stderr


def test_a_reader_that_leaves_a_list_is_no_error(server):
    ended(server, "--", "true")
    process = server.start("list", "--all", "-o", "json")
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_showing_a_task_imports_nothing_heavy(server):
    task = ended(server, "--", "true")
    timing = {**server.environment, "PYTHONPROFILEIMPORTTIME": "1"}
    done = server.duly("show", task, env=timing)
    imported = imported_by(done.stderr)
    assert task in done.stdout
    assert "duly.client.sync" in imported
    assert imported & HEAVY == set()
