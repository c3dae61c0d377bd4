"""`duly serve` and `duly db`: what a cluster is set up with."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from duly.client.sync import Client
from tests.conftest import _run, drop_database, with_database
from tests.launch.running_up import DULY


class Shell:
    """Runs commands with a home of their own and one database, told by file."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.dsn_file = folder / "dsn"
        self.dsn_file.write_text(dsn)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DULY_", "XDG_", "PG"))}
        self.env = {**kept, "HOME": str(folder)}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [DULY, *arguments, "--database-file", str(self.dsn_file)]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [DULY, *arguments, "--database-file", str(self.dsn_file)]
        return subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def shell(tmp_path, postgres):
    """A shell on a database in which nothing has been done yet."""
    name = f"commands_{os.getpid()}"
    asyncio.run(_run(postgres, f"create database {name}"))
    yield Shell(tmp_path, with_database(postgres, name))
    asyncio.run(drop_database(postgres, name))


def test_a_database_is_set_up_by_hand_and_a_server_is_started_on_it(shell, tmp_path):
    before = shell.run("db", "status")
    assert (before.returncode, "pending: 0001" in before.stdout) == (1, True)
    refused = shell.run("serve", "--port", "0")
    assert (refused.returncode, "duly db init" in refused.stderr) == (1, True)

    key_file = tmp_path / "admin.key"
    assert shell.run("db", "init", "--admin-key-file", str(key_file)).returncode == 0
    assert key_file.stat().st_mode & 0o777 == 0o600
    key = key_file.read_text()
    assert shell.run("db", "init", "--admin-key-file", str(key_file)).returncode == 0
    assert key_file.read_text() == key
    assert shell.run("db", "migrate").returncode == 0
    after = shell.run("db", "status")
    assert (after.returncode, "pending" in after.stdout) == (0, False)

    with shell.start("serve", "--port", "0", "--store", str(tmp_path / "objects")) as server:
        url = server.stdout.readline().removeprefix("ready: ").strip()
        with Client(url, key) as client:
            assert client.submit(command=["true"])["status"] == "waiting"
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0


def test_the_first_key_is_printed_once(shell):
    first = shell.run("db", "init")
    assert first.stdout.startswith("duly_")
    second = shell.run("db", "init")
    assert (second.returncode, second.stdout) == (0, "")


def test_a_database_that_is_not_there_is_told_without_its_password(shell):
    shell.dsn_file.write_text("postgresql://duly:not-to-be-seen@127.0.0.1:1/duly")
    for command in (["db", "status"], ["serve", "--port", "0"]):
        done = shell.run(*command)
        assert done.returncode == 1
        assert "not-to-be-seen" not in done.stderr and "Traceback" not in done.stderr
