"""The virtual network affects real connections as described."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture import namespaces
from tests.torture.network import Host, Network
from tests.torture.processes import Program, until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(
        bool(namespaces.missing_requirement()), reason=str(namespaces.missing_requirement())
    ),
]
SILENCE_SECONDS = 0.5
"""Seconds without a response after which a connection counts as silent."""
ECHO = """
import socket, threading
def serve(conn):
    while data := conn.recv(65536):
        conn.sendall(data)
listener = socket.create_server(("0.0.0.0", 7000))
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def echo(network: Network, tmp_path: Path) -> Host:
    """A host b with an echo server on port 7000, beside a host a."""
    network.host("a")
    host = network.host("b")
    program = host.spawn([sys.executable, "-c", ECHO], log=tmp_path / "echo.log")
    until(lambda: program.has_logged("listening"), "the echo")
    return host


def connect(network: Network, host: Host, seconds: float = 10) -> socket.socket:
    with network.host("a").entered():
        return socket.create_connection((host.address, 7000), timeout=seconds)


def echoes(conn: socket.socket) -> bool:
    conn.sendall(b"x")
    return conn.recv(1) == b"x"


def is_silent(conn: socket.socket) -> bool:
    conn.settimeout(SILENCE_SECONDS)
    try:
        return not echoes(conn)
    except TimeoutError:
        return True
    finally:
        conn.settimeout(10)


def test_nothing_passes_a_cut_until_it_is_healed(network: Network, echo: Host) -> None:
    with connect(network, echo) as conn:
        assert echoes(conn)
        network.cut("a", "b")
        assert is_silent(conn)
        network.heal()
        assert conn.recv(1) == b"x"


def test_a_cut_can_be_one_way(network: Network, echo: Host) -> None:
    with connect(network, echo) as conn:
        network.cut("b", "a", one_way=True)
        conn.sendall(b"hello")
        conn.settimeout(SILENCE_SECONDS)
        with pytest.raises(TimeoutError):
            conn.recv(5)
        network.mend("a", "b")
        conn.settimeout(10)
        assert conn.recv(5) == b"hello"


def test_an_isolated_host_reaches_no_other(network: Network, echo: Host) -> None:
    network.isolate("b")
    with pytest.raises(TimeoutError):
        connect(network, echo, SILENCE_SECONDS)
    network.rejoin("b")
    with connect(network, echo) as conn:
        assert echoes(conn)


def test_connections_are_reset(network: Network, echo: Host) -> None:
    with connect(network, echo) as conn:
        assert echoes(conn)
        assert network.reset_connections("a", "b") >= 1
        with pytest.raises(OSError, match=r"reset|abort|Broken"):
            echoes(conn)
    with connect(network, echo) as conn:
        assert echoes(conn)


def test_existing_connections_can_be_half_open_while_new_ones_work(
    network: Network, echo: Host
) -> None:
    with connect(network, echo) as old:
        assert echoes(old)
        assert network.make_half_open("a", "b") == 1
        assert is_silent(old)
        with connect(network, echo) as new:
            assert echoes(new)
        assert is_silent(old)


def test_a_throttled_host_is_slow(network: Network, echo: Host) -> None:
    with connect(network, echo) as conn:
        conn.settimeout(20)
        network.throttle("b", "1mbit")
        assert seconds_for(conn, 300_000) > 1.5
        network.heal()
        assert seconds_for(conn, 300_000) < 1.5


def seconds_for(conn: socket.socket, size: int) -> float:
    began = time.monotonic()
    conn.sendall(bytes(size))
    while size > 0:
        size -= len(conn.recv(65536))
    return time.monotonic() - began


def test_a_host_is_frozen_thawed_and_killed_as_a_whole(network: Network, echo: Host) -> None:
    with connect(network, echo) as conn:
        echo.freeze()
        assert is_silent(conn)
        echo.thaw()
        assert conn.recv(1) == b"x"
        echo.kill_all()
        assert namespaces.processes_in(echo.namespace) == []


def test_nothing_is_left_of_a_run_that_was_killed(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\nimport time\n"
        "from tests.torture.network import Network\n"
        "with Network() as network:\n"
        f"    log = Path({str(tmp_path)!r})\n"
        "    network.host('a').spawn(['sleep', '600'], log=log / 'sleep.log')\n"
        "    network.disk('a', log / 'disk', 1)\n"
        "    print(network.prefix, flush=True)\n"
        "    time.sleep(600)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        try:
            prefix = run.stdout.readline().strip()
            pids = until(lambda: namespaces.processes_in(f"{prefix}a"), "the sleeper")
        finally:
            run.kill()
    with Network():
        pass
    leftovers = [path.name for path in namespaces.NETNS.iterdir() if path.name.startswith(prefix)]
    assert leftovers == []
    assert prefix not in Path("/proc/mounts").read_text()
    assert not any(Path(f"/proc/{pid}/ns/net").exists() for pid in pids)


def test_a_run_leaves_nothing_even_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Network() as network:
        program: Program = network.host("a").spawn(["sleep", "600"], log=tmp_path / "log")
        raise ZeroDivisionError
    assert not program.is_running()
    assert not any(path.name.startswith(network.prefix) for path in namespaces.NETNS.iterdir())
