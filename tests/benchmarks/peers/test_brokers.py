"""Brokers are private and durable; missing programs come from Debian."""

import os
import select
from pathlib import Path

import pytest

from benchmarks.peers import environment
from benchmarks.peers.brokers import FSYNC, redis_options, redis_version
from benchmarks.peers.debian import find_program, new_packages
from benchmarks.peers.environment import python_for
from benchmarks.peers.system import About, Broker, Facts, Unavailable

MINIMAL = About("x", "X", (Broker.NONE,), ("none",), Facts("a", "b", "c", "d"))
SIMULATION = """\
NOTE: This is only a simulation!
The following NEW packages will be installed:
  libjemalloc2 redis-server redis-tools
Inst libjemalloc2 (5.3.0-1 Debian:12.15/oldstable [amd64])
Inst redis-tools (5:7.0.15 Debian:12.15/oldstable [amd64])
Inst redis-server (5:7.0.15 Debian:12.15/oldstable [amd64])
Conf redis-server (5:7.0.15 Debian:12.15/oldstable [amd64])
"""


def option(options, name):
    return options[options.index(name) + 1]


@pytest.mark.parametrize(
    ("broker", "fsync"), [(Broker.REDIS, "everysec"), (Broker.REDIS_ALWAYS, "always")]
)
def test_redis_writes_every_command_to_disk_and_listens_on_no_port(broker, fsync):
    options = redis_options(FSYNC[broker], Path("/home"))
    assert option(options, "--port") == "0"
    assert option(options, "--unixsocketperm") == "700"
    assert option(options, "--appendonly") == "yes"
    assert option(options, "--appendfsync") == fsync


def test_the_version_is_found_in_the_output_of_redis():
    assert redis_version("Redis server v=7.0.15 sha=00000000:0 bits=64") == "7.0.15"


def test_the_packages_are_those_that_would_be_installed():
    assert new_packages(SIMULATION) == ["libjemalloc2", "redis-tools", "redis-server"]


def test_an_installed_program_is_used_as_it_is(tmp_path):
    assert find_program("sh", tmp_path).variables == {}
    assert list(tmp_path.iterdir()) == []


def test_without_apt_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        Unavailable, match="without apt-get it cannot be fetched: install redis-server"
    ):
        find_program("redis-server", tmp_path)


def test_a_package_that_cannot_be_installed_makes_its_peer_unavailable(tmp_path, monkeypatch):
    # Without an index pip fails at once, as it does without a network.
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    not_installable = About(
        **{f: getattr(MINIMAL, f) for f in ("name", "brokers", "settings", "facts")},
        title="Nobody",
        packages=("no-such-thing-as-this",),
    )
    with pytest.raises(
        Unavailable, match=r"^Nobody could not be installed: .*no-such-thing-as-this"
    ):
        python_for(not_installable, tmp_path)


def test_a_system_without_packages_runs_in_our_own_python(tmp_path):
    python_for(MINIMAL, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_installation_that_takes_too_long_is_killed_with_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "INSTALL_TIMEOUT_SECONDS", 0.5)
    pipe = tmp_path / "held"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(Unavailable, match="took over"):
            environment._run(MINIMAL, ["/bin/sh", "-c", f"sleep 600 >{pipe} & wait"])
        # End of file: no process holds the other end any more.
        assert select.select([reader], [], [], 10)[0] == [reader]
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)
