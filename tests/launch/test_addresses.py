"""What a server says about its address, and about who else can read what is sent to it."""

import os
import subprocess

import pytest

from tests.launch.place import Place
from tests.launch.running_up import DULY
from tests.launch.test_tls import Authority

ADDRESS = "10.9.8.7"
NETWORK = (
    f"ip link set lo up && ip addr add {ADDRESS}/32 dev lo && "
    f'ip route add default dev lo src {ADDRESS} && exec "$@"'
)
"""A network of its own, so that no test listens where others can connect."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a network of its own")


@pytest.fixture
def place(open_folder, dsn):
    return Place(open_folder, dsn)


def listening(place, *arguments):
    """Start a server, and return its first line and what it warned of."""
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", NETWORK, "sh", DULY, *arguments, "--port", "8470"],
        env=place.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            ready = process.stdout.readline()
        finally:
            process.terminate()
        return ready, process.stderr.read()


def serving(place, *arguments):
    store = ["--store", str(place.folder / "store"), "--database-file", str(place.dsn_file)]
    return listening(place, "serve", *store, *arguments)


def test_a_server_for_other_machines_warns_without_tls_and_prints_an_address_for_them(place):
    ready, warned = serving(place, "--host", "0.0.0.0")
    assert ready == f"ready: http://{ADDRESS}:8470\n"
    assert "unencrypted" in warned and "--tls-cert" in warned


def test_a_server_with_tls_or_on_loopback_does_not_warn(place):
    signed = Authority(place.folder / "authority").sign("server")
    tls = ["--tls-cert", str(signed.chain), "--tls-key", str(signed.key)]
    assert serving(place, "--host", "0.0.0.0", *tls) == (f"ready: https://{ADDRESS}:8470\n", "")
    assert serving(place) == ("ready: http://127.0.0.1:8470\n", "")


def test_duly_up_for_other_machines_warns_and_prints_an_address_for_them(place):
    data = ["--data", str(place.folder / "data"), "--database-file", str(place.dsn_file)]
    ready, warned = listening(place, "up", *data, "--host", "0.0.0.0", "--no-dashboard")
    assert ready == f"ready: http://{ADDRESS}:8470\n"
    assert "unencrypted" in warned
