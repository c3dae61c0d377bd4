"""The standard input of attempts, with a real supervisor and real processes."""

import os

import pytest

from duly.agent.supervision.task_input import open_input
from duly.model.requests.program_request import MAX_STDIN_BYTES
from duly.model.task import Outcome

LINES = "one\n zwei ü\n\nlast"


async def test_a_task_reads_what_was_sent_along(node):
    report = await node.run("cat", stdin=LINES)
    assert (report.outcome, report.tail) == (Outcome.SUCCEEDED, LINES.encode())


async def test_it_may_be_opened_again_by_its_name(node):
    report = await node.run("cat", "/dev/stdin", stdin=LINES)
    assert report.tail == LINES.encode()


async def test_the_longest_input_arrives_whole_even_with_little_disk(best_node):
    report = await best_node.run("wc", "-c", stdin="x" * MAX_STDIN_BYTES, disk_mb=1)
    assert report.tail.split() == [str(MAX_STDIN_BYTES).encode()]


@pytest.mark.parametrize("stdin", [None, ""])
async def test_without_input_there_is_none(best_node, stdin):
    await best_node.run("cat", stdin="of another task")
    report = await best_node.run("cat", stdin=stdin)
    assert (report.outcome, report.tail) == (Outcome.SUCCEEDED, b"")


async def test_a_task_that_does_not_read_its_input_leaves_it_to_nobody(best_node):
    await best_node.run("true", stdin="secret")
    assert (await best_node.run("cat")).tail == b""


async def test_a_script_gets_it_too(best_node):
    report = await best_node.run(source="#!/bin/sh\nread line; echo got $line\n", stdin="a\nb\n")
    assert report.tail == b"got a\n"


def test_nobody_can_change_it():
    fd = open_input(b"abc")
    try:
        assert os.read(fd, 10) == b"abc"
        for change in (lambda: os.write(fd, b"x"), lambda: os.truncate(fd, 0)):
            with pytest.raises(PermissionError):
                change()
    finally:
        os.close(fd)
