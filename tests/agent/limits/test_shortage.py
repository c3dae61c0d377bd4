"""A node that is short of something of its own: no task's fault, and no work until it is over."""

import errno
import resource

import pytest

from duly.agent.limits.shortage import MAX_PAUSE_SECONDS, MIN_PAUSE_SECONDS, Shortage, find_shortage
from duly.model.task import Outcome


async def test_descriptors_that_the_node_lacks_cost_the_task_no_attempt(best_node):
    assert (await best_node.run("true")).outcome is Outcome.SUCCEEDED
    _, hard = resource.prlimit(best_node.supervisor, resource.RLIMIT_NOFILE)
    resource.prlimit(best_node.supervisor, resource.RLIMIT_NOFILE, (5, hard))
    report = await best_node.run("true")
    assert (report.outcome, report.reason.code) == (Outcome.EXPIRED, "node_short")
    assert report.reason.message == "Its node is short of open files and could not start it."
    resource.prlimit(best_node.supervisor, resource.RLIMIT_NOFILE, (hard, hard))
    assert (await best_node.run("true")).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("step", "error", "resource_name"),
    [
        ("fork", errno.EMFILE, "open files"),
        ("fork", errno.ENOMEM, "memory"),
        ("user", errno.EAGAIN, "processes or users"),
        ("workspace", errno.ENOSPC, "disk space"),
        ("exec", errno.EAGAIN, "processes or users"),
        ("exec", errno.ENOENT, None),
        ("ports", errno.EAGAIN, None),
        ("exec", errno.E2BIG, None),
        ("exec", errno.ENOSPC, None),
        ("workspace", errno.EACCES, None),
    ],
)
def test_a_shortage_is_told_from_what_is_wrong_with_the_task(step, error, resource_name):
    assert find_shortage(step, error) == resource_name


def test_a_node_takes_work_again_after_a_pause():
    shortage = Shortage()
    assert shortage.current(0.0) is None
    shortage.begin("open files", 0.0)
    assert shortage.current(MIN_PAUSE_SECONDS - 1) == "open files"
    assert shortage.current(MIN_PAUSE_SECONDS) is None


def test_pauses_become_longer_while_nothing_gets_better_and_no_longer_than_a_bound():
    shortage, now, lengths = Shortage(), 0.0, []
    for _ in range(8):
        shortage.begin("memory", now)
        began = now
        while shortage.current(now):
            now += 1
        lengths.append(now - began)
    assert lengths == [10, 20, 40, 80, 160, 300, 300, 300]
    shortage.begin("memory", now + MAX_PAUSE_SECONDS + 1)
    assert shortage.current(now + MAX_PAUSE_SECONDS + MIN_PAUSE_SECONDS) == "memory"
    assert shortage.current(now + MAX_PAUSE_SECONDS + 1 + MIN_PAUSE_SECONDS) is None


def test_starts_that_fail_together_are_one_shortage():
    shortage = Shortage()
    for moment in (0.0, 0.1, 9.0):
        shortage.begin("memory", moment)
    assert shortage.current(MIN_PAUSE_SECONDS) is None
