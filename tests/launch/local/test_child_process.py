"""Parts of `duly up` in processes of their own: kept, told secrets, stopped, never left behind."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from duly.launch.local import child_process as part_module
from duly.launch.local.child_process import ChildProcess, keep_running

PROGRAM = """
import os, signal, sys
from duly.launch.local.child_process import receive, report_started
options = receive(dict)
def note(text):
    with open(options["notes"], "a") as notes:
        notes.write(f"{text}\\n")
def stop(*_):
    note("asked")
    if options["obeys"]:
        sys.exit(0)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, lambda *_: note("interrupted"))
note(os.getpid())
report_started()
while True:
    signal.pause()
"""


@pytest.fixture
def notes(tmp_path, monkeypatch):
    (tmp_path / "a_test_part.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("DULY_KEY", "hidden-environment-0815")
    monkeypatch.setattr(part_module, "INITIAL_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(part_module, "HURRIED_STOP_TIMEOUT_SECONDS", 0.2)
    return tmp_path / "notes"


def make(notes: Path, *, obeys: bool = True) -> ChildProcess:
    options = {"notes": str(notes), "obeys": obeys, "key": "hidden-option-4711"}
    return ChildProcess("part", "a_test_part", lambda: options)


def pids(notes: Path) -> list[int]:
    return [int(line) for line in notes.read_text().splitlines() if line.isdecimal()]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_part_is_told_secrets_where_nobody_else_can_read_them(notes):
    async with asyncio.timeout(20), keep_running(make(notes), 5, asyncio.Event()) as part:
        await part.started.wait()
        [pid] = pids(notes)
        for file in ("cmdline", "environ"):
            assert b"hidden-" not in Path(f"/proc/{pid}/{file}").read_bytes()
    assert is_gone(pid)
    assert notes.read_text().endswith("asked\n")


async def test_a_part_that_dies_is_started_again(notes):
    async with asyncio.timeout(20), keep_running(make(notes), 5, asyncio.Event()) as part:
        await part.started.wait()
        part.started.clear()
        os.kill(pids(notes)[0], signal.SIGKILL)
        await part.started.wait()
        first, second = pids(notes)
        assert is_gone(first) and not is_gone(second)
    assert is_gone(second)


async def test_a_part_that_does_not_obey_is_killed(notes):
    async with (
        asyncio.timeout(20),
        keep_running(make(notes, obeys=False), 0.2, asyncio.Event()) as part,
    ):
        await part.started.wait()
    assert is_gone(pids(notes)[0])
    assert notes.read_text().count("asked") == 2


async def test_who_hurries_does_not_wait_for_the_patience(notes):
    hurry = asyncio.Event()
    async with asyncio.timeout(20), keep_running(make(notes, obeys=False), 3600, hurry) as part:
        await part.started.wait()
        hurry.set()
    assert is_gone(pids(notes)[0])


async def test_a_part_is_stopped_when_what_it_serves_fails(notes):
    with pytest.raises(ExceptionGroup):
        async with asyncio.timeout(20), keep_running(make(notes), 5, asyncio.Event()) as part:
            await part.started.wait()
            _ = 1 / 0
    assert is_gone(pids(notes)[0])


def test_a_part_dies_with_its_parent_and_is_deaf_to_the_terminal(notes):
    parent = (
        "import asyncio, sys\n"
        "from duly.launch.local.child_process import ChildProcess, keep_running\n"
        "async def main():\n"
        "    options = {'notes': sys.argv[1], 'obeys': True}\n"
        "    part = ChildProcess('part', 'a_test_part', lambda: options)\n"
        "    async with keep_running(part, 5, asyncio.Event()):\n"
        "        await part.started.wait(); print('started', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(notes)], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout.readline() == b"started\n"
        [pid] = pids(notes)
        handle = os.pidfd_open(pid)
        os.kill(process.pid, signal.SIGSTOP)
        os.killpg(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGKILL)
    ended, _, _ = select.select([handle], [], [], 10)
    os.close(handle)
    assert ended
    assert "interrupted" not in notes.read_text()
