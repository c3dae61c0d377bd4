"""Lists of tasks: reasons in a word, refs, and lists that refresh."""

import json
import os
import pty
import signal
import subprocess
import uuid

from tests.cli.conftest import DULY

CLEAR = b"\x1b[H\x1b[2J"


def test_a_task_that_has_not_started_is_listed_with_its_reason_in_a_word(server):
    name = uuid.uuid4().hex
    server.duly("submit", "--name", name, "--in", "1h", "--", "true")
    (line,) = [line for line in server.duly("list").stdout.splitlines() if name in line]
    assert line.split()[-1] == "not_due"


def test_a_task_is_found_by_its_ref(server, tmp_path):
    ref = uuid.uuid4().hex
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps([{"ref": ref, "command": ["true"]}]))
    assert server.duly("submit", "-f", str(graph)).returncode == 0
    assert ref in server.duly("list", "--name", ref).stdout


def test_a_failed_task_has_no_time_to_start_by(server):
    server.duly("submit", "--attempts", "1", "--", "false")
    server.duly("wait")
    assert "start by" not in server.duly("show").stdout


def test_a_watched_list_refreshes_until_it_is_interrupted(server):
    ours, theirs = pty.openpty()
    env = {**server.environment, "TERM": "xterm"}
    process = subprocess.Popen([DULY, "list", "--watch"], env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while shown.count(CLEAR) < 2:
        shown += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 128 + signal.SIGINT
    os.close(ours)


def test_only_one_page_of_a_table_can_be_watched(server):
    done = server.duly("list", "--watch", "--all")
    assert (done.returncode, "--watch" in done.stderr) == (2, True)
