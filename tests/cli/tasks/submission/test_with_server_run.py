"""Commands that stand for a task: `run`, `wait` and `submit --wait`."""

import re
import signal
from pathlib import Path

import pytest

from duly.server.artifacts.log_store import LOST_NOTICE

WAIT_FOR = 'echo up; while [ ! -e "$1" ]; do sleep 0.05; done; echo seen'
FOREVER = "echo up; exec sleep 600"


def finish(process) -> tuple[int, bytes, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err.decode()


def test_run_shows_the_output_and_ends_with_one_line(server):
    done = server.duly("run", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.returncode, done.stdout) == (0, "out\nerr\n")
    assert re.fullmatch(
        r"done \(attempt 1 of 1\); waited \S+ s, ran \S+ s, peak memory (under 1|\d+) MiB\n",
        done.stderr,
    )


@pytest.mark.parametrize("command", [("run",), ("submit", "--attempts", "1", "--wait"), ("wait",)])
def test_commands_that_wait_end_with_the_same_line(server, command):
    program = () if command == ("wait",) else ("--", "sh", "-c", "exit 3")
    if not program:
        server.duly("submit", "--attempts", "1", "--", "sh", "-c", "exit 3")
    done = server.duly(*command, *program)
    assert done.returncode == 3
    assert done.stderr.startswith("failed: exit code 3 (attempt 1 of 1); waited ")


def test_the_output_is_passed_on_byte_by_byte(server):
    process = server.start("run", "--", "printf", r"\377\000\033[31m\r\n\303\274")
    code, out, _ = finish(process)
    assert (code, out) == (0, b"\xff\x00\x1b[31m\r\n\xc3\xbc")


def test_the_output_comes_while_the_task_runs(server, shared: Path):
    process = server.start("run", "--", "sh", "-c", WAIT_FOR, "sh", str(shared / "go"))
    assert process.stdout.readline() == b"up\n"
    (shared / "go").touch()
    code, out, _ = finish(process)
    assert (code, out) == (0, b"seen\n")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--", "sh", "-c", "exit 3"], 3),
        (["--", "sh", "-c", "kill -9 $$"], 137),
        (["--", "sh", "-c", "kill -15 $$"], 143),
        (["--cap", "0.3s", "--", "sleep", "600"], 124),
        (["--", "no-such-program"], 127),
        (["--cpu", "10000", "--", "true"], 125),
    ],
)
@pytest.mark.parametrize("command", [["run"], ["submit", "--wait", "--attempts", "1"]])
def test_the_exit_code_is_that_of_the_task(server, command, args, code):
    assert server.duly(*command, *args).returncode == code


def test_arguments_of_the_task_are_not_taken_for_ours(server):
    done = server.duly("run", "printf", "%s|", "--name", "-h", "--", "a b", "")
    assert done.stdout == "--name|-h|--|a b||"


def test_ctrl_c_cancels_and_waits_for_the_end(server):
    process = server.start("run", "--name", "interrupted", "--", "sh", "-c", FOREVER)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "Cancelling" in err
    assert err.splitlines()[-1].startswith("cancelled (attempt 1 of 1); waited")
    with server.client() as client:
        (task,) = client.list_tasks(name="interrupted")["items"]
    assert task["status"] == "cancelled"


def test_a_second_ctrl_c_leaves_at_once(server, shared: Path):
    stubborn = f"trap '' TERM; echo up; while [ ! -e {shared}/go ]; do sleep 0.05; done"
    process = server.start("run", "--", "sh", "-c", stubborn)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    while b"Cancelling" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert (code, "duly show" in err) == (130, True)
    (shared / "go").touch()


def test_in_submit_wait_ctrl_c_leaves_the_task_alone(server, shared: Path):
    go = shared / "go"
    process = server.start("submit", "--wait", "--", "sh", "-c", WAIT_FOR, "sh", str(go))
    task = process.stdout.readline().split()[1].decode()
    with server.client() as client:
        next(client.follow_logs(task))
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process)
        assert code == 130
        assert f"duly wait {task}" in err
        assert client.get_task(task)["status"] == "running"
        go.touch()
    assert server.duly("wait", task).returncode == 0


def test_a_reader_that_leaves_ends_the_task(server):
    process = server.start("run", "--name", "unread", "--", "sh", "-c", "while echo y; do :; done")
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    process.wait(60)
    assert process.returncode == 128 + signal.SIGPIPE
    assert process.stderr.read() == b""
    process.stderr.close()
    with server.client() as client:
        (task,) = client.list_tasks(name="unread")["items"]
        assert client.wait(task["id"])["status"] == "cancelled"


def test_wait_gives_up_when_told_to(server):
    task = server.duly("submit", "--in", "1h", "-o", "id", "--", "true").stdout.strip()
    done = server.duly("wait", task, "--timeout", "0.1s")
    assert done.returncode == 125
    assert "still scheduled" in done.stderr
    assert server.duly("cancel", task).returncode == 0
    assert server.duly("wait", task).returncode == 125


def test_a_script_from_here_is_sent_along(server, tmp_path: Path):
    script = tmp_path / "job.sh"
    script.write_text('#!/bin/sh\necho "$GREETING ü"\n', encoding="utf-8")
    done = server.duly("run", "--env", "GREETING=hello", "--script", str(script))
    assert (done.returncode, done.stdout) == (0, "hello ü\n")


def test_a_local_file_as_the_command_is_refused_with_the_hint(server, tmp_path: Path):
    (tmp_path / "job.sh").write_text("#!/bin/sh\n")
    done = server.duly("run", "./job.sh", cwd=tmp_path)
    assert done.returncode == 2
    assert "--script ./job.sh" in done.stderr


def test_following_shows_every_attempt_that_follows(server, shared: Path):
    flaky = f"echo try; [ -e {shared}/once ] || {{ touch {shared}/once; exit 1; }}"
    done = server.duly("run", "--attempts", "3", "--", "sh", "-c", flaky)
    assert (done.returncode, done.stdout) == (0, "try\ntry\n")
    assert "done (attempt 2 of 3); " in done.stderr


def test_run_outlives_a_kill_of_everything(mortal_up, shared: Path):
    go = shared / "go"
    process = mortal_up.server.start("run", "--", "sh", "-c", WAIT_FOR, "sh", str(go))
    assert process.stdout.readline() == b"up\n"
    mortal_up.kill()
    go.touch()
    mortal_up.start()
    code, out, err = finish(process)
    assert (code, out) == (0, LOST_NOTICE + b"up\nseen\n"), err
