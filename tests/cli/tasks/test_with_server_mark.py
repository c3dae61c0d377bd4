"""`duly mark`, as a user does it, and the method of both clients."""

import json

import pytest

import duly
from tests.cli.tasks.test_with_server_tasks import answer, submit
from tests.launch.running_up import until


def test_a_running_task_is_marked_as_done_with_a_result(server, tmp_path):
    task = submit(server, "--", "sleep", "600")
    dependant = submit(server, "--after", task, "--", "true")
    (tmp_path / "result.json").write_text('{"paid": [1, 2]}')
    marked = server.duly(
        "mark",
        task,
        "--done",
        "--result",
        str(tmp_path / "result.json"),
        "--reason",
        "paid by hand",
    )
    assert (marked.returncode, marked.stdout) == (0, f"Task {task} marked as done.\n"), (
        marked.stderr
    )
    assert answer(server, "result", task) == {"paid": [1, 2]}
    assert "paid by hand" in server.duly("why", task).stdout
    assert server.duly("wait", dependant).returncode == 0


def test_the_next_task_on_a_node_starts_when_no_process_of_the_marked_one_is_left(
    mortal_up, shared
):
    server, pid = mortal_up.server, shared / "pid"
    (node,) = answer(server, "node", "list")["items"]
    whole = ("--cpu", str(node["capacity"]["cpu"]))
    deaf = f"trap '' TERM; echo $$ > {pid}.new; mv {pid}.new {pid}; while :; do sleep 1; done"
    first = submit(server, *whole, "--", "sh", "-c", deaf)
    until(pid.exists, "the task to begin")
    second = submit(server, *whole, "--", "sh", "-c", f"test ! -e /proc/$(cat {pid})")
    assert server.duly("mark", first, "--done", "--reason", "seen").returncode == 0
    assert server.duly("wait", second).returncode == 0
    assert (answer(server, "show", second)["attempt"], pid.exists()) == (1, True)


def test_a_task_is_marked_as_failed(server):
    task = submit(server, "--at", "2100-01-01T00:00:00Z", "--", "true")
    marked = server.duly("mark", task, "--failed", "--reason", "not needed", "-o", "json")
    assert json.loads(marked.stdout)["status"] == "failed", marked.stderr


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--reason", "x"], "Give either --done or --failed."),
        (["--done", "--failed", "--reason", "x"], "Give either --done or --failed."),
        (["--done"], "--reason"),
        (
            ["--failed", "--reason", "x", "--result", "f"],
            "--result: a failed task has no result. Leave it out, or use --done.",
        ),
        (["--done", "--reason", "x", "--result", "/no/such"], "cannot be read"),
        (["--done", "--reason", "x", "--result", "/etc/hostname"], "is not JSON"),
    ],
)
def test_flags_that_make_no_sense_are_refused(server, flags, told):
    done = server.duly("mark", "1", *flags)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())


async def test_both_clients_mark(server):
    later = {"command": ["true"], "run_at": "2100-01-01T00:00:00Z"}
    with duly.Client(server.url, server.key) as client:
        first, second = client.submit(**later)["id"], client.submit(**later)["id"]
        assert client.mark_task(first, "done", reason="seen", result=[1])["status"] == "done"
        assert client.get_result(first) == [1]
    async with duly.AsyncClient(server.url, server.key) as client:
        assert (await client.mark_task(second, "failed", reason="no"))["status"] == "failed"
        with pytest.raises(duly.Conflict):
            await client.mark_task(first, "failed", reason="no")
