"""What a data folder keeps, and who may use it."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from duly.agent import identity
from duly.agent.identity import Identity
from duly.agent.preparation import task_users
from duly.errors import ConfigError


def test_an_identity_is_kept_and_private(tmp_path):
    assert identity.load(tmp_path) is None
    identity.save(tmp_path, Identity(7, "secret"))
    identity.save(tmp_path, Identity(8, "other"))
    assert identity.load(tmp_path) == Identity(8, "other")
    assert stat.S_IMODE((tmp_path / "node.json").stat().st_mode) == 0o600


def test_a_broken_identity_is_told_with_the_way_out(tmp_path):
    (tmp_path / "node.json").write_text("{")
    with pytest.raises(ConfigError, match="Remove it to join as a new node"):
        identity.load(tmp_path)


@pytest.mark.parametrize("name", ["agent.lock", "supervisor.lock"])
def test_a_lock_that_leads_elsewhere_is_refused(tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    data = tmp_path / "data"
    data.mkdir()
    (data / name).symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=f"Cannot use .*{name}"):
        identity.lock(data)
    assert elsewhere.read_text() == "kept"


def test_a_second_agent_on_a_folder_is_refused(tmp_path):
    lock = identity.lock(tmp_path)
    with pytest.raises(ConfigError, match="Another agent runs"):
        identity.lock(tmp_path)
    os.close(lock)
    os.close(identity.lock(tmp_path))


def test_a_supervisor_that_does_not_go_is_seen_off(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "SUPERVISOR_EXIT_TIMEOUT_SECONDS", 0.05)
    hold = (
        "import fcntl, os, sys, time\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "os.write(fd, str(os.getpid()).encode())\n"
        "print('held', flush=True)\n"
        "time.sleep(1000)\n"
    )
    path = tmp_path / "supervisor.lock"
    old = subprocess.Popen([sys.executable, "-c", hold, path], stdout=subprocess.PIPE)
    with old:
        assert old.stdout is not None and old.stdout.readline() == b"held\n"
        os.close(identity.lock(tmp_path))
        assert old.wait() == -signal.SIGKILL


def test_two_folders_have_two_marks(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    marks = {identity.instance_name(tmp_path / name) for name in ("a", "b", "a/../a")}
    assert len(marks) == 2


BLOCK = 250


def test_agents_on_one_machine_never_share_a_user(tmp_path):
    first = task_users.OwnUsers(1000, BLOCK, tmp_path)
    second = task_users.OwnUsers(1000, BLOCK, tmp_path)
    ours = [first.take() for _ in range(BLOCK + 10)]
    theirs = [second.take() for _ in range(BLOCK + 10)]
    assert not set(ours) & set(theirs)
    assert all(user and first.owns(user.uid) and not second.owns(user.uid) for user in ours)
    first.close()
    second.close()


def test_a_user_is_used_again_as_late_as_possible(tmp_path):
    pool = task_users.OwnUsers(1000, BLOCK, tmp_path)
    seen = set()
    for _ in range(BLOCK):
        user = pool.take()
        assert user not in seen
        seen.add(user)
        pool.release(user)
    pool.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can choose")
def test_tasks_never_run_as_root():
    with pytest.raises(ConfigError, match="never run as root"):
        task_users.choose("root")
    with pytest.raises(ConfigError, match="no user"):
        task_users.choose("nobody-by-this-name")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run tasks as somebody else")
def test_tasks_never_run_as_the_owner_of_the_database(monkeypatch):
    monkeypatch.setattr(task_users, "DATABASE_USER", "nobody")
    with pytest.raises(ConfigError, match="owns the database"):
        task_users.choose("nobody")
