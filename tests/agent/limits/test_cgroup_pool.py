"""Groups that are used again: those of the kinds that are asked for."""

import select
from dataclasses import dataclass

import pytest

from duly.agent.limits import cgroup_pool
from duly.agent.limits.cgroup import Layout, Limits
from duly.agent.limits.cgroup_pool import CgroupPool


@dataclass
class Folder:
    """What stands for a group; none is made in the kernel."""

    layout: Layout
    name: str
    limits: Limits
    processes: int
    oom_event: int | None = None
    is_removed: bool = False
    is_worn: bool = False

    def renew(self):
        return not self.is_worn

    def remove(self):
        self.is_removed = True


@pytest.fixture
def three(monkeypatch):
    """Groups of which three are kept."""
    monkeypatch.setattr(cgroup_pool, "Cgroup", Folder)
    monkeypatch.setattr(cgroup_pool, "MAX_IDLE_GROUPS", 3)
    with select.epoll() as poll:
        yield CgroupPool(Layout(), 10, poll)


def test_a_group_is_used_again_by_what_needs_the_same(three):
    first = three.take(Limits(16))
    three.release(first)
    assert three.take(Limits(32)) is not first
    assert three.take(Limits(16)) is first
    assert three.take(Limits(16)) is not first


def test_groups_of_the_same_memory_and_another_share_of_cpu_are_of_another_kind(three):
    first = three.take(Limits(16, 500))
    three.release(first)
    assert three.take(Limits(16, 1500)) is not first
    assert three.take(Limits(16, 500, cpu_quota=True)) is not first
    assert three.take(Limits(16, 500)) is first


def test_a_kind_that_nobody_asks_for_makes_room(three):
    old = [three.take(Limits(16)) for _ in range(3)]
    new = [three.take(Limits(32)) for _ in range(4)]
    for group in old + new:
        three.release(group)
    assert [group.is_removed for group in old] == [True] * 3
    assert [group.is_removed for group in new] == [True, False, False, False]
    assert [three.take(Limits(32)) for _ in range(3)] == new[:0:-1]


def test_what_was_asked_for_last_is_kept_for_longest(three):
    small, large, more = three.take(Limits(16)), three.take(Limits(32)), three.take(Limits(64))
    three.release(small)
    three.release(large)
    three.release(three.take(Limits(16)))
    three.release(more)
    three.release(three.take(Limits(128)))
    assert (small.is_removed, large.is_removed, more.is_removed) == (False, True, False)


def test_a_group_that_is_not_as_it_was_is_removed(three):
    worn = three.take(Limits(16))
    worn.is_worn = True
    three.release(worn)
    assert worn.is_removed
    assert three.take(Limits(16)) is not worn
