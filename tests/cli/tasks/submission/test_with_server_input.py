"""Input of tasks, and keys that may not read, with a whole Duly."""

import os
import subprocess

import pytest

from tests.cli.conftest import DULY

HINT = "Standard input is not sent to the task."
TWICE = 'cat; [ "$DULY_ATTEMPT" = 2 ]'


@pytest.fixture
def pipe():
    """A pipe with two lines in it, whose other end is closed."""
    reading, writing = os.pipe()
    os.write(writing, b"one\ntwo\n")
    os.close(writing)
    yield reading
    os.close(reading)


def test_every_attempt_reads_the_input_from_its_beginning(server, pipe):
    args = ["--max-attempts", "2", "--stdin", "-", "--", "sh", "-c", TWICE]
    done = server.duly("submit", "--wait", "-o", "id", *args, stdin=pipe)
    assert done.returncode == 0
    assert HINT not in done.stderr
    task = done.stdout.strip()
    with server.client() as client:
        assert client.get_task(task)["stdin"] == "one\ntwo\n"
        attempts = client.list_attempts(task)
    assert [attempt["outcome"] for attempt in attempts] == ["failed", "succeeded"]
    assert server.duly("logs", task).stdout == "one\ntwo\n"


def test_a_file_is_sent_along(server, tmp_path):
    (tmp_path / "in").write_text("hello\n")
    done = server.duly("run", "--stdin", str(tmp_path / "in"), "--", "cat")
    assert (done.returncode, done.stdout) == (0, "hello\n")


def test_a_manifest_may_have_input(server, tmp_path):
    (tmp_path / "task.yaml").write_text("command: [cat]\nstdin: |\n  from the file\n")
    done = server.duly("submit", "--wait", "-o", "id", "-f", str(tmp_path / "task.yaml"))
    assert done.returncode == 0
    assert server.duly("logs", done.stdout.strip()).stdout == "from the file\n"


@pytest.mark.parametrize("command", [["run"], ["submit"], ["submit", "--wait"]])
def test_input_without_the_flag_is_left_alone_with_a_hint(server, pipe, command):
    done = server.duly(*command, "--", "cat", stdin=pipe)
    assert done.returncode == 0
    assert HINT in done.stderr and "--stdin -" in done.stderr
    assert os.read(pipe, 100) == b"one\ntwo\n"


def test_a_loop_over_the_lines_of_a_file_reads_all_of_them_without_hints(server, tmp_path):
    (tmp_path / "list").write_text("one\ntwo\n")
    script = f'while read -r line; do {DULY} run -- echo "$line"; done < {tmp_path}/list'
    done = subprocess.run(
        ["sh", "-c", script],
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "one\ntwo\n"
    assert HINT not in done.stderr


@pytest.mark.parametrize("bundle", [False, True])
@pytest.mark.parametrize("command", ["run", "submit", "file"])
def test_without_the_scope_read_nothing_is_submitted_or_uploaded(server, tmp_path, command, bundle):
    name = f"unreadable-{command}-{bundle}"
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "data").write_text(name)
    with server.client() as client:
        key = client.create_key(scopes=["submit"])["key"]
        uploaded = client.list_artifacts()["items"]
    env = {**server.environment, "DULY_URL": server.url, "DULY_KEY": key}
    if command == "file":
        line = f"bundle: {tmp_path}/job\n" if bundle else ""
        (tmp_path / "task.yaml").write_text(f"name: {name}\ncommand: ['true']\n{line}")
        args = ["submit", "--wait", "-f", str(tmp_path / "task.yaml")]
    else:
        args = ["run"] if command == "run" else ["submit", "--wait"]
        args += ["--name", name, *(["--bundle", str(tmp_path / "job")] if bundle else [])]
        args += ["--", "true"]
    done = server.duly(*args, env=env)
    assert done.returncode == 125
    assert "Nothing was submitted" in done.stderr and "'read'" in done.stderr
    with server.client() as client:
        assert client.list_tasks(name=name)["items"] == []
        assert client.list_artifacts()["items"] == uploaded


def test_submit_alone_needs_no_scope_but_its_own(server):
    with server.client() as client:
        key = client.create_key(scopes=["submit"])["key"]
    env = {**server.environment, "DULY_URL": server.url, "DULY_KEY": key}
    assert server.duly("submit", "--", "true", env=env).returncode == 0
