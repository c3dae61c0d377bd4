"""`duly up`: everything on one machine with one command, and nothing lost by any ending."""

import os
import pty
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import urllib.request
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from duly.store.embedded import postmaster
from tests.conftest import copy_data
from tests.launch.running_up import DULY, Machine, Up, until
from tests.launch.still import standing_still

pytestmark = pytest.mark.faults
PARTS = ["agent", "dashboard"]


@contextmanager
def new_machine():
    # Not in pytest's own folder, which every other run of pytest closes to all but root.
    folder = Path(tempfile.mkdtemp(prefix="duly-test-"))
    machine = Machine(folder)
    yield machine
    machine.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def machine():
    with new_machine() as machine:
        yield machine


@pytest.fixture
def planted(machine, data_template):
    """For what is not about the first start: the folder has a PostgreSQL already."""
    copy_data(data_template, machine.data)


@pytest.fixture(scope="module")
def lasting(data_template):
    """One that outlives whatever the tests do to it, and ends as it should after all of them."""
    with new_machine() as machine:
        copy_data(data_template, machine.data)
        up = machine.up().ready()
        up.wait_for("^pages:")
        yield up
        assert up.stop(signal.SIGINT) == 130
        assert machine.processes() == []


def status_of(up: Up, task: str) -> str:
    with up.client() as client:
        return client.get_task(task)["status"]


def is_served(up: Up) -> bool:
    """Say whether a task comes through."""
    with up.client() as client:
        task = client.submit(command=["true"])
        return client.wait(task["id"])["status"] == "done"


def test_a_newcomer_starts_it_pastes_a_command_opens_the_page_and_stops_it(machine):
    up = machine.up().ready()
    command = up.wait_for("run -- echo").string.strip()
    done = subprocess.run(command, shell=True, env=machine.env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr

    up.wait_for("^pages: ")
    link = machine.link
    with urllib.request.urlopen(link, timeout=10) as page:
        assert page.status == 200
    assert link not in "".join(up.said) + up.warnings
    assert str(machine.data / "pages.link") in up.said[-1]
    assert any(line.startswith("isolation: process") for line in up.said)
    secret = [machine.data / name for name in ("admin.key", "pages.link", "agent/join.token")]
    for private in (*secret, machine.home / ".config/duly/config.toml"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600

    assert up.stop() == 0
    assert machine.processes() == []
    assert up.warnings == "" or os.geteuid() != 0


def test_no_secret_is_in_the_arguments_of_any_process(lasting):
    machine = lasting.machine
    secrets = [machine.key, (machine.data / "postgres.password").read_text().strip()]
    secrets.append((machine.data / "agent" / "join.token").read_text().strip())
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in machine.processes()]
    assert len(commands) > 3
    assert [text for text in commands for secret in secrets if secret in text] == []


def test_no_process_leaves_a_file_open_to_others(lasting):
    assert is_served(lasting)
    machine = lasting.machine
    parts = [lasting.process.pid, *(lasting.child(f"launch.{part}") for part in PARTS)]
    for pid in (*parts, postmaster.find_postmaster(machine.data / "postgres")):
        assert "Umask:\t0077\n" in Path(f"/proc/{pid}/status").read_text()
    files = [path for path in machine.data.rglob("*") if path.is_file()]
    assert machine.data / "agent/node.json" in files
    assert [path for path in files if path.stat().st_mode & 0o077] == []


def test_a_new_link_is_printed_for_who_asks(lasting):
    machine = lasting.machine
    before = machine.link
    link = machine.duly("link").strip()
    assert link == machine.link != before
    assert not _opens(before)
    assert [_opens(link), _opens(link)] == [True, False]
    assert machine.duly("link", "--data", str(machine.data)).strip() == machine.link


def test_there_is_no_link_to_what_does_not_run(machine, tmp_path):
    done = subprocess.run(
        [DULY, "link", "--data", str(tmp_path)], env=machine.env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"No 'duly up' runs on {tmp_path}" in done.stderr


@pytest.mark.usefixtures("planted")
def test_a_person_at_a_terminal_is_shown_the_link(machine):
    ours, theirs = pty.openpty()
    up = machine.up(stdout=theirs)
    os.close(theirs)
    try:
        with os.fdopen(ours) as terminal:
            line = next(line for line in terminal if line.startswith("pages: "))
            assert f"pages: {machine.link} (works once, for 5 minutes" in line
            assert _opens(machine.link)
            assert up.stop() == 0
    finally:
        up.close()


def test_a_second_one_on_the_same_folder_is_refused(lasting):
    second = lasting.machine.up("--no-dashboard")
    assert second.process.wait(20) == 1
    message = f"already up on {lasting.machine.data} (pid {lasting.process.pid})"
    assert message in second.warnings
    assert is_served(lasting)


@pytest.mark.usefixtures("planted")
def test_killed_with_everything_it_had_started_it_goes_on_where_it_was(machine):
    up = machine.up("--no-dashboard").ready()
    postgres = postmaster.find_postmaster(machine.data / "postgres")
    with up.client() as client:
        nap = client.submit(command=["sleep", "600"], max_attempts=1)["id"]
        later = client.submit(command=["true"], run_at="2030-01-01T00:00:00Z")["id"]
    until(lambda: status_of(up, nap) == "running", "the task to run")
    up.kill()
    gone = {postgres, *postmaster.find_processes(machine.data / "postgres")}
    until(lambda: set(machine.processes()) <= gone, "the agent to die with it")

    again = machine.up("--no-dashboard").ready()
    assert postmaster.find_postmaster(machine.data / "postgres") == postgres
    until(lambda: _second_attempt_runs(again, nap), "the task to run again")
    assert status_of(again, later) == "scheduled"
    assert again.stop() == 0
    assert machine.processes() == []


def _second_attempt_runs(up: Up, task: str) -> bool:
    with up.client() as client:
        shown = client.get_task(task)
    return (shown["status"], shown["attempt"], shown["failures"]) == ("running", 2, 0)


@pytest.mark.usefixtures("planted")
def test_stopping_hands_running_tasks_back_with_nothing_counted(machine):
    up = machine.up("--no-dashboard").ready()
    with up.client() as client:
        script = "echo begun; exec sleep 600"
        nap = client.submit(command=["sh", "-c", script], max_attempts=1)["id"]
        until(lambda: client.read_logs(nap) == b"begun\n", "the task to begin")
    assert up.stop() == 0
    assert machine.processes() == []

    again = machine.up("--no-dashboard").ready()
    until(lambda: status_of(again, nap) == "running", "the task to run again")
    with again.client() as client:
        shown = client.get_task(nap)
    assert (shown["failures"], shown["losses"]) == (0, 0)
    assert again.stop() == 0


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_killed_comes_back(lasting, part):
    pid, before = lasting.child(f"launch.{part}"), lasting.machine.link
    os.kill(pid, signal.SIGKILL)
    until(lambda: _other_child(lasting, part, pid), f"another {part}")
    if part == "dashboard":
        lasting.wait_for("^pages: ")
        until(lambda: _opens(lasting.machine.link), "the new link to open")
        assert not _opens(before)
    assert is_served(lasting)


def test_a_pipe_for_a_program_stops_its_task_and_not_the_node(lasting):
    home = lasting.machine.home
    pipe, job = home / "pipe", home / "job"
    os.mkfifo(pipe)
    job.mkdir()
    (job / "data").write_text("x")
    with lasting.client() as client:
        way = "../" * 40 + str(pipe)[1:]
        task = client.submit(command=[way], artifact=client.upload(job), max_attempts=1)["id"]
        ended = client.wait(task, timeout=30)
    assert (ended["status"], ended["losses"]) == ("failed", 0)
    assert ended["reason"]["code"] == "command_not_executable"
    assert is_served(lasting)


@pytest.mark.usefixtures("planted")
def test_an_agent_that_stands_still_is_replaced_and_what_ran_there_runs_again(machine):
    quick = {"DULY_LEASES__TTL": "4s", "DULY_LEASES__HEARTBEAT": "1s"}
    up = machine.up("--no-dashboard", env=quick).ready()
    with up.client() as client:
        nap = client.submit(command=["sleep", "600"], max_attempts=1)["id"]
    until(lambda: status_of(up, nap) == "running", "the task to run")
    pid = up.child("launch.agent")
    with standing_still(pid) as has_ended:
        until(has_ended, "the agent to end itself")
    until(lambda: _second_attempt_runs(up, nap), "the task to run again")
    assert "the event loop stands still and the lease is lost" in up.warnings
    assert up.stop() == 0


def _other_child(up: Up, part: str, pid: int) -> bool:
    try:
        return up.child(f"launch.{part}") != pid
    except StopIteration:
        return False


def _opens(link: str) -> bool:
    # From another address: while nobody listens, a connection may be one with itself, and as long
    # as it is there the pages cannot have their port.
    where = urlsplit(link)
    client = HTTPConnection(where.netloc, timeout=5, source_address=("127.0.0.2", 0))
    try:
        client.request("GET", f"{where.path}?{where.query}")
        return client.getresponse().status == 200
    except OSError:
        return False
    finally:
        client.close()


def test_a_killed_postgresql_is_started_again(lasting):
    folder = lasting.machine.data / "postgres"
    postgres = postmaster.find_postmaster(folder)
    os.kill(postgres, signal.SIGKILL)
    assert is_served(lasting)
    assert postmaster.find_postmaster(folder) != postgres


def test_a_taken_port_is_told_before_anything_is_started(machine):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        up = machine.up(port=port)
        assert up.process.wait(20) == 1
    assert f"port {port}" in up.warnings and "--port" in up.warnings
    assert not (machine.data / "postgres").exists()


@pytest.mark.usefixtures("planted")
def test_a_foreign_configuration_is_left_alone_and_the_commands_work_without_it(machine):
    file = machine.home / ".config/duly/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('url = "http://127.0.0.1:1"\n')
    up = machine.up("--no-dashboard").ready()
    export = up.wait_for("export DULY_URL").string
    command = export + up.wait_for("run -- echo").string
    done = subprocess.run(command, shell=True, env=machine.env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert file.read_text() == 'url = "http://127.0.0.1:1"\n'
    assert "was not changed" in up.warnings
    assert up.stop() == 0


@pytest.mark.usefixtures("planted")
def test_without_a_home_it_warns_and_works(machine):
    machine.home.rmdir()
    machine.home.write_text("a file where a folder should be")
    up = machine.up("--no-dashboard").ready()
    assert "Cannot write the client configuration" in up.warnings
    assert up.stop() == 0


@pytest.mark.parametrize("level", ["full", "sandbox", "none"])
def test_isolation_that_does_not_exist_is_refused(machine, level):
    up = machine.up("--isolation", level)
    assert up.process.wait(20) == 1
    assert "--isolation process" in up.warnings
    assert not machine.data.exists()


def test_an_interrupt_while_it_starts_leaves_nothing_behind(machine):
    up = machine.up("--no-dashboard")
    until(lambda: list(machine.data.glob("postgres.new-*")), "PostgreSQL to be made")
    assert up.stop(signal.SIGINT) == 130
    assert machine.processes() == []
    assert machine.up("--no-dashboard").ready().stop() == 0


def test_killed_while_it_starts_it_starts_the_next_time(machine):
    up = machine.up("--no-dashboard")
    until(lambda: list(machine.data.glob("postgres.new-*")), "PostgreSQL to be made")
    up.kill()
    assert machine.up("--no-dashboard").ready().stop() == 0


def test_an_outside_database_is_used_and_left_running(machine, postgres):
    import asyncio

    from tests.conftest import _run, with_database

    asyncio.run(_run(postgres, "create database outside"))
    outside = with_database(postgres, "outside")
    file = machine.home / "dsn"
    file.write_text(outside)
    up = machine.up("--no-dashboard", "--database-file", str(file)).ready()
    assert is_served(up)
    assert up.stop() == 0
    assert not (machine.data / "postgres").exists()

    async def tables() -> int:
        conn = await asyncpg.connect(outside)
        try:
            return await conn.fetchval("select count(*) from duly.tasks")
        finally:
            await conn.close()

    assert asyncio.run(tables()) == 1
    assert DULY in " ".join(up.process.args)
