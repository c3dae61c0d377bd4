"""What differs when a person at a terminal looks on."""

import os
import pty
import re
import subprocess
import uuid

import pytest

from tests.cli.conftest import DULY, Server

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


def at_terminal(server: Server, *args: str, types: str = "", **environment: str) -> tuple[int, str]:
    """Run a command at a terminal of its own, type, and return how it ended and what was shown."""
    ours, theirs = pty.openpty()
    env = {**server.environment, "TERM": "xterm", "COLUMNS": "200", **environment}
    process = subprocess.Popen([DULY, *args], env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, types.encode())
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    return process.wait(60), shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the last process has closed its side
        return b""


@pytest.fixture
def name(server) -> str:
    """The name of a task that is scheduled for later."""
    name = uuid.uuid4().hex
    server.duly("submit", "--name", name, "--in", "1h", "--", "true")
    return name


def test_colours_are_for_terminals_that_want_them(server, name):
    code, shown = at_terminal(server, "list", "--name", name)
    assert (code, bool(COLOUR.search(shown))) == (0, True)
    _, plain = at_terminal(server, "list", "--name", name, NO_COLOR="1")
    assert not COLOUR.search(plain)
    assert "\x1b" not in server.duly("list", "--name", name).stdout


def test_a_cancel_by_filter_is_asked_about(server, name):
    code, shown = at_terminal(server, "cancel", "--name", name, types="n\n")
    assert code == 1
    assert f"Cancel every task with name {name}?" in shown
    code, shown = at_terminal(server, "cancel", "--name", name, types="y\n")
    assert (code, "1 task cancelled." in shown) == (0, True)


def test_a_cancel_by_filter_that_is_sure_is_not_asked_about(server, name):
    code, shown = at_terminal(server, "cancel", "--name", name, "--yes")
    assert (code, shown) == (0, "1 task cancelled.\r\n")


def test_one_who_waits_for_a_start_is_told_why(server):
    code, shown = at_terminal(server, "run", "--in", "3s", "--", "echo", "hello")
    assert code == 0
    assert shown.startswith("scheduled: ")
    assert "hello\r\n" in shown


def test_a_name_cannot_play_tricks_with_the_terminal(server):
    name = f"{uuid.uuid4().hex}\x1b]0;owned\x07\x9b2J\u202e"
    server.duly("submit", "--name", name, "--in", "1h", "--", "true")
    for output in ("table", "json", "jsonl", "csv"):
        _, shown = at_terminal(server, "list", "--name", name, "-o", output, NO_COLOR="1")
        assert name[:32] in shown
        assert not set(shown) & {"\x07", "\x9b", "\u202e"}
        assert "\x1b]" not in shown
    server.duly("cancel", "--name", name, "--yes")


def test_the_end_is_told_on_a_line_of_its_own(server):
    _, shown = at_terminal(server, "run", "--", "printf", "no newline")
    assert "no newline\r\ndone (attempt 1 of 1); " in shown
    assert server.duly("run", "--", "printf", "no newline").stdout == "no newline"
