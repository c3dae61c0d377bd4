"""What a machine lacks is told with the fix, and nothing is changed by looking."""

import os
import socket
from pathlib import Path

import pytest

from duly.agent import identity
from duly.agent.limits import cgroup_hierarchies
from duly.launch import doctor
from duly.launch.doctor import Level, examine
from duly.launch.local.user_config import write_user_config
from duly.launch.outside_data import describe

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def environment(tmp_path):
    return {"HOME": str(tmp_path / "home")}


def look(tmp_path, environment, port=0):
    findings = examine(tmp_path / "data", "127.0.0.1", port, environment)
    return {finding.about: finding for finding in findings}


def test_this_machine_lacks_nothing_that_is_essential(tmp_path, environment):
    findings = look(tmp_path, environment)
    assert [finding for finding in findings.values() if finding.level is Level.MISSING] == []
    assert findings["postgresql"].text.startswith("version 18")
    assert not (tmp_path / "data").exists() and not (tmp_path / "home").exists()


def test_whatever_is_not_well_comes_with_a_fix_or_says_it_itself(tmp_path, environment):
    findings = look(tmp_path, environment)
    bad = [finding for finding in findings.values() if finding.level is not Level.OK]
    assert {"configuration", "server"} <= {finding.about for finding in bad}
    assert all(finding.fix or "duly up" in finding.text for finding in bad)


def test_a_taken_port_is_told(tmp_path, environment):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert look(tmp_path, environment, port)["ports"].level is Level.WARNING


def test_a_server_that_is_not_there_is_told(tmp_path, environment):
    write_user_config(environment, url=NOWHERE, key="k", data=tmp_path)
    findings = look(tmp_path, environment)
    assert findings["configuration"].level is Level.OK
    assert (findings["server"].level, "duly up" in findings["server"].fix) == (Level.WARNING, True)


def test_a_full_disk_is_told(tmp_path, environment, monkeypatch):
    monkeypatch.setattr(doctor, "MIN_DISK_BYTES", 2**80)
    assert look(tmp_path, environment)["disk"].level is Level.MISSING


def store_finding(folder, environment):
    findings = examine(folder / "data", "127.0.0.1", 0, environment, str(folder / "store"))
    return {finding.about: finding for finding in findings}["store"]


def test_a_given_store_is_searched_for_its_mark(tmp_path, environment):
    assert "does not exist" in store_finding(tmp_path, environment).text
    (tmp_path / "store").mkdir(mode=0o700)
    unmarked = store_finding(tmp_path, environment)
    assert (unmarked.level, "has no duly-store.json" in unmarked.text) == (Level.WARNING, True)
    (tmp_path / "store" / "duly-store.json").touch()
    assert store_finding(tmp_path, environment).level is Level.OK


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_store_of_another_system_user_is_told(tmp_path, environment):
    (tmp_path / "store").mkdir(mode=0o700)
    (tmp_path / "store" / "duly-store.json").touch()
    os.chown(tmp_path / "store" / "duly-store.json", 12345, 12345)
    finding = store_finding(tmp_path, environment)
    assert (finding.level, "user id 12345" in finding.text) == (Level.WARNING, True)


def test_the_folder_of_an_agent_is_recognised(tmp_path, environment):
    (tmp_path / "data").mkdir()
    identity.save(tmp_path / "data", identity.Identity(7, "dulynode_x"))
    assert look(tmp_path, environment)["data"].text.endswith("is the folder of the node with ID 7")
    (tmp_path / "data" / "node.json").write_text("{")
    assert look(tmp_path, environment)["data"].level is Level.MISSING


def test_a_store_that_others_can_enter_is_told_with_the_fix(open_folder, environment):
    store = open_folder / "data" / "objects"
    store.mkdir(parents=True)
    store.chmod(0o755)
    (finding,) = [
        candidate
        for candidate in examine(store.parent, "", 0, environment)
        if candidate.about == "store"
    ]
    assert (finding.level, finding.fix) == (Level.MISSING, f"Run chmod o-rwx {store}.")
    store.chmod(0o750)
    (finding,) = [
        candidate
        for candidate in examine(store.parent, "", 0, environment)
        if candidate.about == "store"
    ]
    assert finding.level is Level.OK


def test_a_secret_that_others_can_read_is_told_with_the_fix(tmp_path, environment):
    key = tmp_path / "data" / "admin.key"
    key.parent.mkdir()
    key.touch(mode=0o600)
    assert look(tmp_path, environment)["secrets"].level is Level.OK
    key.chmod(0o640)
    finding = look(tmp_path, environment)["secrets"]
    assert (finding.level, finding.fix) == (Level.WARNING, f"Run chmod 600 {key}.")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may remount anything")
@pytest.mark.parametrize(
    ("is_quick", "advice"), [(True, "quickly"), (False, "remount,favordynmods")]
)
def test_what_lets_tasks_start_sooner_is_told_and_is_no_fault(
    tmp_path, environment, monkeypatch, is_quick, advice
):
    mount = cgroup_hierarchies.Mount(tmp_path, 2, frozenset(), tmp_path, is_quick)
    monkeypatch.setattr(cgroup_hierarchies, "mounts", lambda: [mount])
    finding = look(tmp_path, environment)["cgroups"]
    assert (finding.level, finding.fix) == (Level.OK, "")
    assert advice in finding.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs tasks as other users")
def test_what_root_keeps_outside_of_the_data_folder_is_said(open_folder):
    closed, agent = open_folder / "closed", open_folder / "agent"
    closed.mkdir(mode=0o700)
    agent.mkdir(mode=0o711)
    agent.chmod(0o711)
    (agent / "node.json").touch()
    assert "the working folders of tasks" in describe(closed, Path("config"))
    assert "the working folders of tasks" not in describe(agent, Path("config"))
    assert "/var/lib/duly" in describe(agent, Path("config"))


def test_every_url_is_tried_although_a_client_would_fail_over(tmp_path, environment):
    write_user_config(environment, url=f"{NOWHERE},http://127.0.0.1:2", key="k", data=tmp_path)
    findings = examine(tmp_path / "data", "127.0.0.1", 0, environment)
    servers = [finding.text for finding in findings if finding.about == "server"]
    urls = (NOWHERE, "http://127.0.0.1:2")
    assert [url in text for url, text in zip(urls, servers, strict=True)] == [True, True]
    assert all(text.count("http://") == 1 for text in servers)
