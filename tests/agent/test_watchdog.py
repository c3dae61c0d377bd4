"""An agent whose event loop stands still ends itself, and no other does."""

import os
import signal
import subprocess
import sys
import time

import pytest

STOPPED_FOR = 1.5
"""Seconds, which are more than a loop may stand still in `tests.agent.watched`."""


def start(what, path, **options):
    command = [sys.executable, "-m", "tests.agent.watched", what, path]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_loop_that_stands_still_without_a_lease_ends_its_process_and_says_where(pipe):
    with start("stand_still", pipe, stderr=subprocess.PIPE) as process:
        said, logged = process.communicate(timeout=60)
    assert (process.returncode, said) == (1, "")
    assert "the event loop stands still and the lease is lost" in logged
    assert "in open_a_pipe" in logged


def test_it_ends_even_if_nobody_reads_what_it_logs(pipe):
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    with start("stand_still", pipe, stderr=writing) as process:
        assert process.wait(60) == 1
    os.close(reading)
    os.close(writing)


def test_a_loop_that_stands_still_for_a_while_and_keeps_its_lease_goes_on(pipe):
    with start("stand_still_for_a_while", pipe) as process:
        assert process.communicate(timeout=60)[0] == "went on\n"


def test_a_loop_that_has_lost_its_lease_and_does_not_stand_still_goes_on(pipe):
    with start("go_on", pipe) as process:
        assert process.communicate(timeout=60)[0] == "went on\n"


def test_a_process_that_was_stopped_as_a_whole_goes_on(tmp_path):
    with start("go_on_when_told", tmp_path / "told") as process:
        assert process.stdout.readline() == "watched\n"
        process.send_signal(signal.SIGSTOP)
        until = time.monotonic() + STOPPED_FOR
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        time.sleep(until - time.monotonic())  # It is what is tested that time passes.
        process.send_signal(signal.SIGCONT)
        (tmp_path / "told").touch()
        assert process.communicate(timeout=60)[0] == "went on\n"
