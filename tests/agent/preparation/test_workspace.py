"""Folders of tasks, which may hold anything."""

import contextlib
import os
import stat
import tracemalloc
from pathlib import Path

import pytest

from duly.agent.preparation import workspace
from duly.agent.preparation.environment import build, interpreter_in, marker
from duly.agent.preparation.task_users import User
from duly.model.resources import Resources
from duly.model.task import Payload
from duly.wire import Assignment, AttemptRef


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "1-1-1"
    path.mkdir()
    return path


def test_a_tree_of_any_depth_is_removed(folder):
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deeper", dir_fd=at)
        below = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    workspace.remove(str(folder))
    assert not folder.exists()


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch], ids=["folders", "files"])
@pytest.mark.parametrize("below", [".", "sub"])
def test_what_is_in_a_large_folder_is_never_listed_whole(folder, make, below):
    (folder / below).mkdir(exist_ok=True)
    for number in range(10_000):
        make(folder / below / f"{number:0100}")
    tracemalloc.start()
    try:
        workspace.remove(str(folder))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not folder.exists()
    assert peak < 500_000


def test_links_are_removed_and_not_followed(folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (folder / "sub").mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "sub" / "link").symlink_to(outside)
    (folder / "sub" / "file").symlink_to(outside / "kept")
    workspace.remove(str(folder))
    assert not folder.exists()
    assert (outside / "kept").read_text() == "x"


def test_what_may_not_be_read_is_removed(folder):
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "c").write_text("x")
    os.mkfifo(folder / "a" / "pipe")
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    workspace.remove(str(folder))
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_another_user_who_was_let_in_is_shut_out_first(folder, tmp_path):
    """What it changes while we look would send our chmod through a link of its own."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    for above in (tmp_path, *tmp_path.parents):
        above.chmod(above.stat().st_mode | stat.S_IXOTH)
    theirs = folder / "theirs"
    (theirs / "folder").mkdir(parents=True)
    (theirs / "link").symlink_to(victim)
    for path in (theirs, theirs / "folder"):
        os.chown(path, INTRUDER, INTRUDER)
    begun, begin = os.pipe()
    child = os.fork()
    if child == 0:
        _swap(theirs, begin)
    try:
        os.read(begun, 1)
        workspace.remove(str(folder))
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(begun)
        os.close(begin)
    assert not folder.exists()
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755


INTRUDER = 1_999_000_001


def _swap(theirs: Path, begin: int) -> None:
    """Change a folder for a link and back, as another user, for as long as that is possible."""
    os.setgroups([])
    os.setresgid(INTRUDER, INTRUDER, INTRUDER)
    os.setresuid(INTRUDER, INTRUDER, INTRUDER)
    os.chdir(theirs)
    os.write(begin, b"x")
    while True:
        for old, new in (
            ("folder", "spare"),
            ("link", "folder"),
            ("folder", "link"),
            ("spare", "folder"),
        ):
            with contextlib.suppress(OSError):
                Path(old).rename(new)


def test_names_like_ours_do_no_harm(folder):
    for name in (".0", ".1", "tmp", "script"):
        (folder / name / "x").mkdir(parents=True)
        (folder / name / "x" / "y").mkdir()
    (folder / "tmp" / "file").write_text("x")
    workspace.remove(str(folder))
    assert not folder.exists()


def test_removing_what_is_gone_is_fine(tmp_path):
    workspace.remove(str(tmp_path / "gone"))


def test_workspaces_are_where_tasks_can_reach_them(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert workspace.root(closed, "m", shared=True) == Path("/var/lib/duly/work-m")
    assert workspace.root(closed, "m", shared=False) == closed / "work"


def test_a_script_belongs_to_its_user(tmp_path):
    path = tmp_path / "w"
    user = User(os.geteuid(), os.getegid())
    workspace.make(str(path), user, "#!/bin/sh\necho é\n")
    script = path / workspace.SCRIPT_FILE
    assert script.read_bytes() == "#!/bin/sh\necho é\n".encode()
    assert stat.S_IMODE(script.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_task_cannot_replace_what_is_ours():
    assignment = Assignment(
        ref=AttemptRef(7, 2, 99),
        payload=Payload(command=["true"], env={"HOME": "/elsewhere", "X": "1"}),
        resources=Resources(),
        execution_cap=1.0,
        grace=1.0,
        idempotency_key="k",
        log_limit=1,
        result_limit=1,
    )
    env = build(assignment, "/w/7-2-99", "/w/no-inputs", [])
    assert env["HOME"] == "/elsewhere"
    assert env["DULY_TASK_ID"] == "7"
    assert "DULY_PORTS" not in env
    assert f"DULY_RESULT={env['DULY_RESULT']}".startswith(marker("/w/7-2-99"))


def test_the_interpreter_of_a_script_is_told_only_if_the_script_is_in_the_bundle(tmp_path):
    folder = tmp_path / "bundle"
    (folder / "bin").mkdir(parents=True)
    for path in (tmp_path / "foreign", folder / "bin" / "own", folder / "bin" / "own.sh"):
        path.write_bytes(b"#!/usr/bin/env sh\n")
    (folder / "link").symlink_to("../foreign")
    (folder / "linked").hardlink_to(tmp_path / "foreign")
    (folder / "bin" / "none").write_bytes(b"ELF")
    assert interpreter_in(str(folder), "bin/own") == "/usr/bin/env"
    assert interpreter_in(str(folder), "./bin/own.sh") == "/usr/bin/env"
    for program in ("own", "bin/none", "./link", "./linked", "../foreign", f"{tmp_path}/foreign"):
        assert interpreter_in(str(folder), program) is None


def test_a_result_is_a_plain_file_of_its_own_and_anything_else_is_told_from_none(tmp_path):
    result = tmp_path / workspace.RESULT_FILE
    assert workspace.read_result(str(tmp_path), 10) is None
    result.write_bytes(b"")
    assert workspace.read_result(str(tmp_path), 10) is None
    result.write_bytes(b"[1]")
    assert workspace.read_result(str(tmp_path), 10) == b"[1]"
    (tmp_path / "other").hardlink_to(result)
    assert workspace.read_result(str(tmp_path), 10) == b""
    result.unlink()
    result.symlink_to("other")
    assert workspace.read_result(str(tmp_path), 10) == b""
    result.unlink()
    os.mkfifo(result)
    assert workspace.read_result(str(tmp_path), 10) == b""
