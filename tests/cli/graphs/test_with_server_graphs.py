"""Graphs by file, by drawing and by both clients, against a whole Duly."""

import json

import pytest

import duly

PHOTO = """
name: photo
defaults: {max_attempts: 1, resources: {cpu: 0.1, memory: 32MiB, disk: 32MiB}}
tasks:
  small: {command: [echo, small]}
  check: {run: "false"}
  publish: {depends_on: [small, check], run: echo published}
  sorry: {depends_on: [{task: check, on: failure}], run: echo sorry}
"""


def test_a_file_is_submitted_whole_waited_for_and_drawn(server, tmp_path):
    (tmp_path / "photo.yaml").write_text(PHOTO)
    file = str(tmp_path / "photo.yaml")
    key = ("--idempotency-key", "photo-1")
    waited = server.duly("submit", "-f", file, "--wait", "-o", "json", *key)
    assert waited.returncode == 1
    assert "2 of 4 tasks done; check failed, publish cancelled" in waited.stderr
    graph = json.loads(waited.stdout)
    assert graph["ids"].keys() == {"small", "check", "publish", "sorry"}
    again = server.duly("submit", "-f", "-", "-o", "id", *key, input=PHOTO)
    assert again.stdout == f"{graph['id']}\n"

    again = server.duly("wait", graph["id"])
    assert again.returncode == 1
    assert again.stderr == (
        f"graph {graph['id']}: 2 of 4 tasks done; check failed, publish cancelled\n"
    )
    for command in ("show", "why", "logs"):
        said = server.duly(command, graph["id"]).stderr
        advice = f"See its tasks with: duly graph {graph['id']}"
        assert said == f"duly: {graph['id']} is a graph, not a task. {advice}\n"

    lines = server.duly("graph", graph["id"]).stdout.splitlines()
    assert lines[0].startswith(f"photo {graph['id']}: failed (")
    words = [line.split() for line in lines[1:]]
    assert [["`-", "└─"].count(line[0]) for line in words] == [0, 1, 0, 1]
    assert [line[2:4] for line in words] == [
        ["small", "done"],
        ["check", "failed"],
        ["publish", "cancelled"],
        ["sorry", "done"],
    ]
    assert server.duly("graph").stdout.splitlines() == lines
    assert lines[3].endswith("after small")
    assert lines[4].endswith("after check (failure)")
    dot = server.duly("graph", graph["ids"]["publish"], "--output", "dot").stdout
    assert (dot.count(" -> "), "sorry" in dot) == (2, False)
    replayed = server.duly("replay", graph["ids"]["check"], "--downstream").stdout
    assert ", with 1 task that depends on it in graph " in replayed
    again = server.duly("wait", replayed.split()[1].rstrip(","))
    assert again.returncode == 1
    assert "(this task)" in server.duly("graph", graph["ids"]["publish"]).stdout


NIGHTLY = """
name: nightly
defaults: {max_attempts: 1, resources: {cpu: 0.1, memory: 32MiB, disk: 32MiB}}
tasks:
  extract: {run: "echo '{\\"rows\\": 3}' > $DULY_RESULT"}
  check: {run: "echo 1 > $DULY_RESULT; exit 1"}
  quiet: {run: "true"}
  report:
    depends_on: [extract, quiet, {task: check, on: always}]
    run: |
      ls $DULY_INPUTS
      cat $DULY_INPUTS/extract.json
      cp $DULY_INPUTS/extract.json $DULY_RESULT
"""


def test_a_task_finds_what_the_tasks_have_left_that_it_depends_on(server):
    waited = server.duly("submit", "-f", "-", "--wait", "-o", "json", input=NIGHTLY)
    report = json.loads(waited.stdout)["ids"]["report"]
    assert server.duly("logs", report).stdout == 'extract.json\n{"rows": 3}\n'
    assert json.loads(server.duly("result", report).stdout) == {"rows": 3}
    later = server.duly(
        "run", "--after", report, "--", "sh", "-c", f"cat $DULY_INPUTS/{report}.json"
    )
    assert later.stdout == '{"rows": 3}\n'
    again = server.duly("replay", report, "-o", "id").stdout.strip()
    assert server.duly("wait", again).returncode == 0
    assert server.duly("logs", again).stdout == 'extract.json\n{"rows": 3}\n'


def test_a_file_that_is_refused_leaves_nothing_and_names_the_line(server):
    manifest = "tasks:\n  a: {run: x}\n  b:\n    run: x\n    depends_on: [a, nobody]\n"
    before = server.duly("list", "-o", "id").stdout
    refused = server.duly("submit", "-f", "-", input=manifest)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "standard input, line 5, column 21: tasks.b.depends_on[1]" in refused.stderr
    assert server.duly("list", "-o", "id").stdout == before
    assert server.duly("submit", "-f", "-", "--cpu", "1", input="run: x").returncode == 2
    assert server.duly("graph", "1").returncode == 1


def test_one_task_of_a_file_ends_the_command_as_it_ended(server):
    ended = server.duly("submit", "-f", "-", "--wait", input="max_attempts: 1\nrun: exit 3\n")
    assert ended.returncode == 3
    two = "- run: 'true'\n- {run: 'false', max_attempts: 1}\n"
    several = server.duly("submit", "-f", "-", "--wait", "-o", "id", input=two)
    assert (several.returncode, len(several.stdout.split())) == (1, 2)
    assert several.stderr == "1 of 2 tasks done; [1] failed\n"


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_both_clients_handle_graphs(server, kind):
    later = {"command": ["true"], "run_at": "2099-01-01T00:00:00Z"}
    tasks = {"a": later, "b": {"command": ["true"], "depends_on": ["a"]}}
    if kind == "sync":
        with duly.Client(server.url, server.key) as client:
            made = client.submit_graph(tasks, name="two")
            around = client.get_task_graph(made["ids"]["b"])
            paused = client.pause_graph(made["id"])
            is_paused = client.get_graph(made["id"])["status"]
            resumed = client.resume_graph(made["id"])
            cancelled = client.cancel_graph(made["id"])
            graph = client.get_graph(made["id"])
    else:
        async with duly.AsyncClient(server.url, server.key) as client:
            made = await client.submit_graph(
                [{"ref": ref, **task} for ref, task in tasks.items()], name="two"
            )
            around = await client.get_task_graph(made["ids"]["b"])
            paused = await client.pause_graph(made["id"])
            is_paused = (await client.get_graph(made["id"]))["status"]
            resumed = await client.resume_graph(made["id"])
            cancelled = await client.cancel_graph(made["id"])
            graph = await client.get_graph(made["id"])
    assert (around["graph"], around["dependencies"]) == (made["id"], [made["ids"]["a"]])
    assert (paused["paused"], paused["running"], is_paused, resumed) == (2, 0, "paused", 2)
    assert (cancelled, graph["name"], graph["status"]) == (2, "two", "cancelled")


def test_a_graph_is_paused_resumed_and_cancelled_as_a_whole(server):
    manifest = "tasks:\n  a: {run: sleep 600}\n  b: {run: x, depends_on: [a]}\n"
    made = json.loads(server.duly("submit", "-f", "-", "-o", "json", input=manifest).stdout)
    graph, task = made["id"], made["ids"]["a"]
    with duly.Client(server.url, server.key) as client:
        while client.get_task(task)["status"] != "running":
            pass
    paused = server.duly("pause", "--graph", graph).stdout
    assert paused == f"1 task of graph {graph} paused; 1 keeps running.\n"
    why = server.duly("why", made["ids"]["b"]).stdout
    assert why.startswith(f"Paused with its graph {graph} at ")
    wrong = server.duly("pause", graph)
    assert (wrong.returncode, f"{graph} is a graph, not a task. Give --graph" in wrong.stderr) == (
        1,
        True,
    )
    assert server.duly("resume", "--graph", graph).stdout == f"2 tasks of graph {graph} resumed.\n"
    wrong = server.duly("cancel", "--graph", task)
    assert (wrong.returncode, f"{task} is a task of graph {graph}." in wrong.stderr) == (1, True)
    assert server.duly("cancel", "--graph", graph, task).returncode == 2
    ended = server.duly("cancel", "--graph", graph, "-o", "json")
    assert json.loads(ended.stdout) == {"cancelled": 2}
    assert server.duly("wait", task).returncode == 125


def test_wait_waits_for_graphs_by_id_and_name_and_for_tasks_beside_them(server, tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text("name: waited\ntasks:\n  a: {run: sleep 1}\n  b: {run: 'true'}\n")
    graph = server.duly("submit", "-f", str(file), "-o", "id").stdout.strip()
    done = server.duly("wait", "waited")
    assert (done.returncode, done.stderr) == (0, f"graph {graph}: 2 of 2 tasks done\n")
    assert json.loads(server.duly("wait", graph, "-o", "json").stdout)["counts"] == {"done": 2}

    task = server.duly("submit", "-o", "id", "--", "sh", "-c", "exit 3").stdout.strip()
    both = server.duly("wait", graph, task)
    assert both.returncode == 3
    first, second = both.stderr.splitlines()
    assert first.startswith(f"graph {graph}: 2 of 2") and second.startswith(f"{task}: failed")


def test_waiting_for_a_graph_gives_up_after_the_timeout(server, tmp_path):
    file = tmp_path / "long.yaml"
    file.write_text("tasks:\n  a: {run: sleep 60}\n")
    graph = server.duly("submit", "-f", str(file), "-o", "id").stdout.strip()
    early = server.duly("wait", graph, "--timeout", "1")
    assert early.returncode == 125
    assert early.stderr == (
        f"duly: Graph {graph} has not ended within the time. See it with: duly graph {graph}\n"
    )
    server.duly("cancel", "--graph", graph, "--yes")
