"""Ports are looked at before anything is started."""

import socket
from pathlib import Path

import pytest

from duly.errors import ConfigError
from duly.launch.local.ports import choose_port, is_loopback, local_name, public_name, url_of

HOST = "127.0.0.84"
"""Ports are taken by address: on this one of the machine nobody else listens or connects."""


@pytest.fixture
def taken():
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_is_named_with_the_way_out(taken):
    with pytest.raises(ConfigError, match=rf"port {taken}: address already in use.*--port"):
        choose_port(HOST, taken, count=1)


def test_the_port_of_the_pages_must_be_free_as_well(taken):
    with pytest.raises(ConfigError, match=rf"port {taken}: .*needs {taken - 1} and {taken}"):
        choose_port(HOST, taken - 1, count=2)


def test_zero_chooses_ports_that_are_free():
    port = choose_port(HOST, 0, count=2)
    assert choose_port(HOST, port, count=2) == port


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 65_536), ("192.0.2.1", 8470), ("no", 1)])
def test_what_cannot_be_listened_on_is_told(host, port):
    with pytest.raises(ConfigError, match="cannot listen"):
        choose_port(host, port, count=1)


def test_an_address_that_is_not_of_this_machine_is_no_matter_of_the_port():
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1: cannot assign.*--host"):
        choose_port("192.0.2.1", 8470, count=2)


def test_this_machine_reaches_itself_by_an_address_that_means_it():
    assert url_of(local_name("0.0.0.0"), 1) == "http://127.0.0.1:1"
    assert url_of(local_name("::"), 1) == "http://[::1]:1"
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "0.0.0.0")] == [True, True, False]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_the_address_for_others_is_of_this_machine_and_loopback_only_without_a_route(host):
    name = public_name(host)
    with socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET) as listener:
        listener.bind((name, 0))
    routes = Path("/proc/net/route").read_text().splitlines()
    if any(line.split()[1] == "00000000" for line in routes) and host != "::":
        assert not is_loopback(name)


def test_the_address_for_others_is_the_one_that_was_given():
    assert public_name("10.0.0.11") == "10.0.0.11"
