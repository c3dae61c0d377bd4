"""Redirects some hosts' PostgreSQL connections through a proxy, for the duration of a fault.

Otherwise connections are direct. A redirect resets the existing connections; new ones are
redirected to the proxy by the kernel of the database's host, unnoticed by the clients.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.torture import proxy
from tests.torture.namespaces import command, inside
from tests.torture.network import Host, Network
from tests.torture.processes import Program, until
from tests.torture.proxy import Behaviour

PORT = 6432
ROOT = Path(__file__).parents[2]


class ProxyRedirect:
    """The proxy in front of one PostgreSQL."""

    def __init__(self, network: Network, host: Host, port: int, folder: Path) -> None:
        self._network = network
        self._host = host
        self._port = port
        self._folder = folder
        self._program: Program | None = None
        self._sources: list[str] = []

    def begin(self, sources: Sequence[str], behaviour: Behaviour) -> None:
        """Redirect new connections of the hosts `sources` through the proxy."""
        if self._program is None or not self._program.is_running():
            self._start()
        self.set_behaviour(behaviour)
        self._sources = list(sources)
        addresses = ", ".join(self._network.host(name).address for name in sources)
        rule = f"ip saddr {{ {addresses} }} tcp dport {self._port} redirect to :{PORT}"
        self._nft("add table ip detour")
        self._nft("add chain ip detour in { type nat hook prerouting priority -100; }")
        self._nft("flush chain ip detour in")
        self._nft(f"add rule ip detour in {rule}")
        for name in self._sources:
            self._network.reset_connections(name, self._host.name)

    def set_behaviour(self, behaviour: Behaviour) -> None:
        proxy.set_behaviour(self._control, behaviour)

    def end(self) -> None:
        """End the redirect; connections through the proxy are reset."""
        if self._program is not None:
            self._nft("delete table ip detour")
            self._program.kill()
            self._program = None

    @property
    def _control(self) -> Path:
        return self._folder / f"{self._host.name}.proxy"

    def _start(self) -> None:
        self._control.unlink(missing_ok=True)
        arguments = [self._host.address, str(PORT), str(self._port), str(self._control)]
        self._program = self._host.spawn(
            [sys.executable, "-m", "tests.torture.proxy", *arguments],
            log=self._folder / f"{self._host.name}-proxy.log",
            env={"PYTHONPATH": str(ROOT)},
        )
        until(self._listens, "the proxy")

    def _listens(self) -> bool:
        try:
            self.set_behaviour(Behaviour())
        except (
            FileNotFoundError,
            ConnectionRefusedError,
        ):  # the socket exists shortly before it listens
            return False
        return True

    def _nft(self, arguments: str) -> None:
        command(*inside(self._host.namespace, "nft", arguments))
