"""A virtual network of hosts whose links can be cut, slowed down or made half-open.

Every host is a network namespace; a bridge in another namespace connects them. Packets are dropped
at the bridge, so that neither end of a cut notices it.
"""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from duly.store.embedded.system_user import SystemUser
from tests.torture import namespaces
from tests.torture.namespaces import command, inside
from tests.torture.processes import Program

NFT_RULES = """
table bridge torture {
    set cut { type ipv4_addr . ipv4_addr; }
    set dead { type ipv4_addr . inet_service . ipv4_addr . inet_service; }
    chain forward {
        type filter hook forward priority 0;
        ip saddr . ip daddr @cut drop
        ip saddr . tcp sport . ip daddr . tcp dport @dead drop
    }
}
"""
"""`cut` has the directions in which all packets are dropped, `dead` the half-open connections."""
JOIN_FREEZER = 'echo $$ > "$1" 2>/dev/null; shift; exec "$@"'
RUN_NUMBERS = itertools.count()


class Host:
    """A virtual host, whose processes can be frozen or killed together."""

    def __init__(self, namespace: str, name: str, address: str) -> None:
        self.namespace = namespace
        self.name = name
        self.address = address
        self._programs: list[Program] = []

    def __repr__(self) -> str:
        return f"<{self.name} {self.address}>"

    def spawn(
        self,
        args: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        user: SystemUser | None = None,
    ) -> Program:
        """Start a program on this host; its descendants belong to the host, too."""
        program = Program(self._command(args, user), log=log, env=env or {})
        self._programs.append(program)
        return program

    def run(
        self,
        args: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        user: SystemUser | None = None,
        seconds: float = 120,
    ) -> str:
        """Run a program on this host, and return its output."""
        completed = subprocess.run(
            self._command(args, user),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**os.environ, **(env or {})},
            text=True,
            timeout=seconds,
        )
        if completed.returncode != 0:
            raise OSError(f"{args[0]} on {self.name}: {completed.stdout.strip()[-2000:]}")
        return completed.stdout

    def entered(self) -> AbstractContextManager[None]:
        """Let this thread, and threads that it starts, open sockets on this host."""
        return namespaces.entered(self.namespace)

    def freeze(self) -> None:
        namespaces.freeze(self.namespace)

    def thaw(self) -> None:
        namespaces.thaw(self.namespace)

    def kill_all(self) -> None:
        """Kill every process of this host at once, like a power failure."""
        namespaces.kill_all(self.namespace)
        self._reap()

    def remove(self) -> None:
        """Kill every process of this host, and remove it."""
        namespaces.remove(self.namespace)
        self._reap()

    def unplug(self) -> None:
        command("ip", "-n", self.namespace, "link", "set", "eth0", "down")

    def plug_in(self) -> None:
        command("ip", "-n", self.namespace, "link", "set", "eth0", "up")

    def _reap(self) -> None:
        for program in self._programs:
            program.kill()  # it may not have entered the namespace yet
        self._programs.clear()

    def _command(self, args: Sequence[str], user: SystemUser | None) -> list[str]:
        group = namespaces.FREEZER / self.namespace / "cgroup.procs"
        change_user = []
        if user is not None and not user.is_us:
            change_user = [
                "setpriv",
                f"--reuid={user.uid}",
                f"--regid={user.gid}",
                "--clear-groups",
            ]
        join_command = ["/bin/sh", "-c", JOIN_FREEZER, "sh", str(group)]
        return [*join_command, *inside(self.namespace, *change_user, *args)]


class Network:
    """The hosts of one run, which are removed at the end of the block."""

    def __init__(self) -> None:
        prefix = namespaces.prefix_of(os.getpid())
        assert prefix is not None
        self.prefix = f"{prefix}{next(RUN_NUMBERS)}-"
        self._hub = f"{self.prefix}hub"
        self._hosts: dict[str, Host] = {}
        self._throttled: set[str] = set()
        self._unplugged: set[str] = set()

    def __enter__(self) -> Self:
        namespaces.sweep()
        namespaces.create(self._hub)
        try:
            for arguments in ("add br0 type bridge", "set br0 up"):
                command("ip", "-n", self._hub, "link", *arguments.split())
            self._nft(NFT_RULES)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill every process, and remove every namespace and disk of this network."""
        for host in self.hosts:
            with contextlib.suppress(OSError):
                host.remove()
        with contextlib.suppress(OSError):
            namespaces.remove(self._hub)
        namespaces.unmount_disks(self.prefix)
        self._hosts.clear()

    def host(self, name: str) -> Host:
        """Return the host with a name; it is created at the first call."""
        if name not in self._hosts:
            self._hosts[name] = self._create_host(name, len(self._hosts) + 10)
        return self._hosts[name]

    @property
    def hosts(self) -> list[Host]:
        return list(self._hosts.values())

    def disk(self, name: str, folder: Path, megabytes: int) -> None:
        """Mount a small disk at `folder`."""
        namespaces.mount_disk(f"{self.prefix}{name}", folder, megabytes)

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Drop all packets from `a` to `b`, and back unless `one_way`."""
        directions = [(a, b)] if one_way else [(a, b), (b, a)]
        self._add("cut", [self._pair(*direction) for direction in directions])

    def mend(self, a: str, b: str) -> None:
        """Undo `cut` between two hosts."""
        self._remove("cut", [self._pair(a, b), self._pair(b, a)])

    def isolate(self, name: str) -> None:
        """Cut all links of a host."""
        self._add("cut", self._links_of(name))

    def rejoin(self, name: str) -> None:
        """Undo `cut` between a host and all others."""
        self._remove("cut", self._links_of(name))

    def unplug(self, name: str) -> None:
        """Take the link of a host down, which its processes can notice."""
        self._unplugged.add(name)
        self.host(name).unplug()

    def plug_in(self, name: str) -> None:
        self._unplugged.discard(name)
        self.host(name).plug_in()

    def heal(self) -> None:
        """Undo all cuts, half-open connections, throttles and unplugged links."""
        self._nft("flush set bridge torture cut; flush set bridge torture dead")
        for name in list(self._throttled):
            self.release(name)
        for name in list(self._unplugged):
            self.plug_in(name)

    def reset_connections(self, a: str, b: str) -> int:
        """Reset every TCP connection between two hosts; return the number."""
        broken = 0
        for here, there in ((a, b), (b, a)):
            broken += len(self.connections(here, there))
            kill = ["ss", "-K", "-t", "-n", "dst", self.host(there).address]
            subprocess.run(inside(self.host(here).namespace, *kill), capture_output=True)
        return broken

    def make_half_open(self, a: str, b: str) -> int:
        """Drop all packets of the existing connections; new connections work.

        Like a firewall that has lost its state: the connections are half-open at both ends.
        """
        near, far = self.host(a).address, self.host(b).address
        connections = self.connections(a, b)
        directions = [f"{near} . {mine} . {far} . {theirs}" for mine, theirs in connections]
        directions += [f"{far} . {theirs} . {near} . {mine}" for mine, theirs in connections]
        self._add("dead", directions)
        return len(connections)

    def clear_half_open(self) -> None:
        """Allow the ports of half-open connections to be used again."""
        self._nft("flush set bridge torture dead")

    def connections(self, a: str, b: str) -> list[tuple[str, str]]:
        """Return the ports at `a` and at `b` of every connection between them."""
        listed = ["ss", "-H", "-t", "-n", "state", "established", "dst", self.host(b).address]
        output = command(*inside(self.host(a).namespace, *listed))
        ends = [line.split()[2:4] for line in output.splitlines()]
        return [(mine.rpartition(":")[2], theirs.rpartition(":")[2]) for mine, theirs in ends]

    def throttle(self, name: str, rate: str) -> None:
        """Limit the bandwidth of a host in both directions, such as `1mbit`."""
        self._throttled.add(name)
        for namespace, device in self._ends(name):
            arguments = f"qdisc replace dev {device} root tbf rate {rate} burst 16kb latency 500ms"
            command("tc", "-n", namespace, *arguments.split())

    def release(self, name: str) -> None:
        """Undo `throttle`."""
        self._throttled.discard(name)
        for namespace, device in self._ends(name):
            with contextlib.suppress(OSError):
                command("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")

    def _create_host(self, name: str, number: int) -> Host:
        host = Host(f"{self.prefix}{name}", name, f"10.77.0.{number}")
        namespaces.create(host.namespace)
        # Both ends are created in their namespaces, not in the network of the machine.
        arguments = f"add p{number} type veth peer name eth0 netns {host.namespace}"
        command("ip", "-n", self._hub, "link", *arguments.split())
        arguments = f"set p{number} master br0 up"
        command("ip", "-n", self._hub, "link", *arguments.split())
        command("ip", "-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        host.plug_in()
        return host

    def _ends(self, name: str) -> Iterator[tuple[str, str]]:
        host = self.host(name)
        yield host.namespace, "eth0"
        yield self._hub, f"p{host.address.rpartition('.')[2]}"

    def _pair(self, a: str, b: str) -> str:
        return f"{self.host(a).address} . {self.host(b).address}"

    def _links_of(self, name: str) -> list[str]:
        others = [host.name for host in self.hosts if host.name != name]
        return [
            self._pair(*direction)
            for other in others
            for direction in ((name, other), (other, name))
        ]

    def _add(self, set_name: str, elements: list[str]) -> None:
        if elements:
            self._nft(f"add element bridge torture {set_name} {{ {', '.join(elements)} }}")

    def _remove(self, set_name: str, elements: list[str]) -> None:
        for element in elements:
            # Deleting a missing element is an error, so it is added first.
            self._nft(
                f"add element bridge torture {set_name} {{ {element} }};"
                f"delete element bridge torture {set_name} {{ {element} }}"
            )

    def _nft(self, rules: str) -> None:
        completed = subprocess.run(
            inside(self._hub, "nft", "-f", "-"), input=rules, capture_output=True, text=True
        )
        if completed.returncode != 0:
            raise OSError(f"nft: {completed.stderr.strip()}")
