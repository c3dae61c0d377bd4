"""Folders that are used again: only by the same tenant, and only as they were when made."""

import os
import stat
import tracemalloc
from pathlib import Path

import pytest

from duly.agent.leftovers import sweep
from duly.agent.preparation.workspace_pool import (
    MAX_IDLE_SECONDS,
    STALE_SECONDS,
    WorkspacePool,
    reclaim,
)
from duly.model.task import Outcome

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a user for every attempt")
OURS = os.geteuid(), os.getegid()
WHERE = "pwd; stat -c '%u %a' .; id -u"


async def told(node, script=WHERE, **options):
    """Run a script, and return what it says of its folder, line by line."""
    report = await node.run("sh", "-c", script, **options)
    assert report.outcome is Outcome.SUCCEEDED
    return report.tail.decode().split()


@only_root
@pytest.mark.parametrize("node", ["cgroup", "uid"], indirect=True)
async def test_the_next_attempt_of_a_tenant_has_the_folder_of_the_last(node):
    first = await told(node)
    second = await told(node)
    assert first[0] == second[0]
    for _, owner, mode, user in (first, second):
        assert (owner, mode) == (user, "700")
    assert first[3] != second[3]
    assert node.left == []


@only_root
async def test_a_folder_that_waits_is_nobodys(best_node):
    folder = Path((await told(best_node))[0])
    found = folder.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o700)


@only_root
async def test_no_tenant_has_the_folder_of_another(best_node):
    folders = [(await told(best_node, tenant=tenant))[0] for tenant in (1, 2, 1, 2)]
    assert folders[0] != folders[1]
    assert folders[2:] == folders[:2]


@only_root
async def test_folders_of_attempts_at_the_same_time_are_apart(best_node, doorbell):
    script = f"pwd > {doorbell.path}; sleep 1000"
    refs = [best_node.start("sh", "-c", script) for _ in range(3)]
    assert len({await doorbell.ring() for _ in refs}) == 3
    for ref in refs:
        best_node.command("kill", ref)
        await best_node.end(ref)


@only_root
@pytest.mark.parametrize(
    "left",
    ["touch x", "mkdir x", "ln -s / x", "chmod 755 .", "chmod g+s .", "chmod +t ."],
)
async def test_a_folder_that_is_not_as_it_was_is_removed(best_node, left):
    folder = (await told(best_node, f"{WHERE}; {left}"))[0]
    assert best_node.left == [folder]
    assert (await told(best_node))[0] != folder


@only_root
async def test_without_a_tenant_nothing_is_kept(best_node):
    folder = (await told(best_node, tenant=None))[0]
    assert not Path(folder).exists()
    assert best_node.left == []


@only_root
async def test_a_folder_that_somebody_has_tidied_up_is_made_anew(best_node):
    folder = (await told(best_node))[0]
    Path(folder).rmdir()
    again, owner, mode, user = await told(best_node)
    assert (again, owner, mode) == (folder, user, "700")


@pytest.mark.parametrize("name", ["user.note", "system.posix_acl_default"])
def test_a_folder_with_attributes_is_not_taken_back(tmp_path, name):
    folder = tmp_path / "work"
    folder.mkdir(mode=0o700)
    assert reclaim(str(folder), OURS)
    value = b"x"
    if name != "user.note":
        # Version 2; the owner, user 1, the group, the mask and others, each with its rights.
        entries = [(1, 7, -1), (2, 7, 1), (4, 0, -1), (16, 7, -1), (32, 0, -1)]
        value = (2).to_bytes(4, "little") + b"".join(
            tag.to_bytes(2, "little")
            + rights.to_bytes(2, "little")
            + (who % 2**32).to_bytes(4, "little")
            for tag, rights, who in entries
        )
    try:
        os.setxattr(folder, name, value)
    except OSError:
        pytest.skip("this file system has no such attributes")
    assert not reclaim(str(folder), OURS)


@only_root
def test_a_large_folder_is_not_listed_to_see_that_it_is_not_empty(tmp_path):
    for number in range(10_000):
        (tmp_path / f"{number:0100}").touch()
    tracemalloc.start()
    try:
        assert not reclaim(str(tmp_path), (0, 0))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_what_is_no_folder_is_not_taken_back(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    for name in ("link", "file", "nothing"):
        assert not reclaim(str(tmp_path / name), OURS)


def test_those_that_came_first_make_room():
    workspace_pool = WorkspacePool(most=3)
    assert [
        workspace_pool.keep(path, tenant) for path, tenant in [("a", 1), ("b", 2), ("c", 1)]
    ] == [None] * 3
    assert workspace_pool.keep("d", 3) == "a"
    assert workspace_pool.keep("e", 3) == "b"
    assert workspace_pool.take(2) is None
    assert [workspace_pool.take(3), workspace_pool.take(3), workspace_pool.take(3)] == [
        "e",
        "d",
        None,
    ]
    assert [workspace_pool.take(1), workspace_pool.take(1), workspace_pool.take(None)] == [
        "c",
        None,
        None,
    ]


def test_a_folder_is_kept_if_there_is_room_for_it():
    now = 0.0
    workspace_pool = WorkspacePool(most=2, now=lambda: now)
    for path, tenant in [("a", 1), ("b", 2)]:
        assert workspace_pool.has_room()
        assert workspace_pool.keep(path, tenant) is None
    assert not workspace_pool.has_room()
    assert workspace_pool.take(2) == "b"
    assert workspace_pool.has_room()
    workspace_pool.keep("b", 2)
    now = STALE_SECONDS
    assert not workspace_pool.has_room()
    now = STALE_SECONDS + 0.1
    assert workspace_pool.has_room()
    assert workspace_pool.keep("c", 3) == "a"


def test_a_folder_that_nobody_asks_for_goes_in_the_end(monkeypatch):
    monkeypatch.setattr("duly.agent.preparation.workspace_pool.MAX_EVICTIONS_PER_PASS", 2)
    now = 0.0
    workspace_pool = WorkspacePool(now=lambda: now)
    for path, tenant in [("a", 1), ("b", 2), ("c", 1), ("d", 3)]:
        workspace_pool.keep(path, tenant)
    now = MAX_IDLE_SECONDS
    assert workspace_pool.forget() == []
    workspace_pool.keep(workspace_pool.take(3), 3)
    now += 0.1
    assert [workspace_pool.forget(), workspace_pool.forget(), workspace_pool.forget()] == [
        ["a", "b"],
        ["c"],
        [],
    ]
    assert [workspace_pool.take(1), workspace_pool.take(2), workspace_pool.take(3)] == [
        None,
        None,
        "d",
    ]


@only_root
async def test_folders_for_which_there_is_no_room_are_removed_at_once(best_node, monkeypatch):
    monkeypatch.setattr(best_node.attempts, "_workspace_pool", WorkspacePool(most=3))
    folders = [Path((await told(best_node, tenant=tenant))[0]) for tenant in range(1, 6)]
    assert [folder.exists() for folder in folders] == [True, True, True, False, False]
    assert best_node.left == []


@only_root
async def test_what_was_kept_for_somebody_who_has_not_come_is_removed(best_node, monkeypatch):
    now = 0.0
    monkeypatch.setattr(best_node.attempts, "_workspace_pool", WorkspacePool(now=lambda: now))
    first, second = [(await told(best_node, tenant=tenant))[0] for tenant in (1, 2)]
    now = MAX_IDLE_SECONDS + 0.1
    await told(best_node, tenant=2)
    best_node.attempts.evict_idle_workspaces()
    assert best_node.left == [first]
    assert (await told(best_node, tenant=1))[0] not in (first, second)


@only_root
async def test_of_very_many_the_next_agent_removes_the_rest_after_it_has_joined(
    best_node, monkeypatch
):
    monkeypatch.setattr("duly.agent.leftovers.MAX_REMOVAL_SECONDS", -1.0)
    work = best_node.work
    kept = [(await told(best_node, tenant=tenant))[0] for tenant in (1, 2)]
    for name in ("full", "open"):
        (work / name).mkdir(mode=0o700)
    (work / "full" / "file").touch()
    (work / "open").chmod(0o755)
    left = sweep(best_node.mark, work, best_node.data / "spool", best_node.users)
    assert sorted(left) == sorted(kept)
    assert sorted(map(str, work.iterdir())) == sorted(kept)
    monkeypatch.undo()
    assert sweep(best_node.mark, work, best_node.data / "spool", best_node.users) == []
    assert list(work.iterdir()) == []
