"""Hosts on a network of their own, whose links can be cut, slowed, and made to lie.

Every host is a network namespace; a bridge in one more of them joins them. The bridge is
also where packets are dropped, so that neither end of a cut knows anything of it.
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

RULES = """
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
"""`cut` are the ways on which nothing passes, `dead` the connections that nobody told."""
JOIN = 'echo $$ > "$1" 2>/dev/null; shift; exec "$@"'
RUNS = itertools.count()


class Host:
    """A machine, as far as the network, and what can be frozen or killed as a whole."""

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
        """Start a program here; every process that it is the parent of belongs here, too."""
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
        """Run a program here to its end, and return what it said."""
        done = subprocess.run(
            self._command(args, user),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**os.environ, **(env or {})},
            text=True,
            timeout=seconds,
        )
        if done.returncode != 0:
            raise OSError(f"{args[0]} on {self.name}: {done.stdout.strip()[-2000:]}")
        return done.stdout

    def entered(self) -> AbstractContextManager[None]:
        """Let this thread, and those that it starts, open their sockets here."""
        return namespaces.entered(self.namespace)

    def freeze(self) -> None:
        namespaces.freeze(self.namespace)

    def thaw(self) -> None:
        namespaces.thaw(self.namespace)

    def kill_all(self) -> None:
        """End every process of this host at once, as if it had lost its power."""
        namespaces.kill_all(self.namespace)
        self._bury()

    def remove(self) -> None:
        """End every process of this host, and take it away."""
        namespaces.remove(self.namespace)
        self._bury()

    def unplug(self) -> None:
        command("ip", "-n", self.namespace, "link", "set", "eth0", "down")

    def plug_in(self) -> None:
        command("ip", "-n", self.namespace, "link", "set", "eth0", "up")

    def _bury(self) -> None:
        for program in self._programs:
            program.kill()  # it may have been on its way into the namespace
        self._programs.clear()

    def _command(self, args: Sequence[str], user: SystemUser | None) -> list[str]:
        group = namespaces.FREEZER / self.namespace / "cgroup.procs"
        change = []
        if user is not None and not user.is_us:
            change = ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups"]
        joined = ["/bin/sh", "-c", JOIN, "sh", str(group)]
        return [*joined, *inside(self.namespace, *change, *args)]


class Network:
    """The hosts of one run; everything of it is gone when the block ends."""

    def __init__(self) -> None:
        prefix = namespaces.prefix_of(os.getpid())
        assert prefix is not None
        self.prefix = f"{prefix}{next(RUNS)}-"
        self._hub = f"{self.prefix}hub"
        self._hosts: dict[str, Host] = {}
        self._throttled: set[str] = set()
        self._unplugged: set[str] = set()

    def __enter__(self) -> Self:
        namespaces.sweep()
        namespaces.make(self._hub)
        try:
            for words in ("add br0 type bridge", "set br0 up"):
                command("ip", "-n", self._hub, "link", *words.split())
            self._nft(RULES)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove every namespace and disk of this network."""
        for host in self.hosts:
            with contextlib.suppress(OSError):
                host.remove()
        with contextlib.suppress(OSError):
            namespaces.remove(self._hub)
        namespaces.unmount_disks(self.prefix)
        self._hosts.clear()

    def host(self, name: str) -> Host:
        """Return the host of that name, which is made when it is first asked for."""
        if name not in self._hosts:
            self._hosts[name] = self._make(name, len(self._hosts) + 10)
        return self._hosts[name]

    @property
    def hosts(self) -> list[Host]:
        return list(self._hosts.values())

    def disk(self, name: str, folder: Path, megabytes: int) -> None:
        """Make `folder` a small disk of its own."""
        namespaces.mount_disk(f"{self.prefix}{name}", folder, megabytes)

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Let nothing pass from `a` to `b`, and neither back unless `one_way`."""
        ways = [(a, b)] if one_way else [(a, b), (b, a)]
        self._add("cut", [self._pair(*way) for way in ways])

    def mend(self, a: str, b: str) -> None:
        """Undo what was cut between two hosts."""
        self._remove("cut", [self._pair(a, b), self._pair(b, a)])

    def isolate(self, name: str) -> None:
        """Cut a host off from all others."""
        self._add("cut", self._ways_of(name))

    def rejoin(self, name: str) -> None:
        """Undo what was cut between a host and any other."""
        self._remove("cut", self._ways_of(name))

    def unplug(self, name: str) -> None:
        """Take a host's link down, which its own processes can see."""
        self._unplugged.add(name)
        self.host(name).unplug()

    def plug_in(self, name: str) -> None:
        self._unplugged.discard(name)
        self.host(name).plug_in()

    def heal(self) -> None:
        """Undo everything: cuts, dead connections, throttles, links that are down."""
        self._nft("flush set bridge torture cut; flush set bridge torture dead")
        for name in list(self._throttled):
            self.release(name)
        for name in list(self._unplugged):
            self.plug_in(name)

    def reset_connections(self, a: str, b: str) -> int:
        """Break every TCP connection between two hosts with a RST; return how many."""
        broken = 0
        for here, there in ((a, b), (b, a)):
            broken += len(self.connections(here, there))
            kill = ["ss", "-K", "-t", "-n", "dst", self.host(there).address]
            subprocess.run(inside(self.host(here).namespace, *kill), capture_output=True)
        return broken

    def kill_silently(self, a: str, b: str) -> int:
        """Let the connections that there are now carry nothing more; new ones are fine.

        This is what a firewall does that has forgotten them: half-open, at both ends.
        """
        near, far = self.host(a).address, self.host(b).address
        dead = self.connections(a, b)
        ways = [f"{near} . {mine} . {far} . {theirs}" for mine, theirs in dead]
        ways += [f"{far} . {theirs} . {near} . {mine}" for mine, theirs in dead]
        self._add("dead", ways)
        return len(dead)

    def forget_dead(self) -> None:
        """Let ports be used again whose connections were killed silently."""
        self._nft("flush set bridge torture dead")

    def connections(self, a: str, b: str) -> list[tuple[str, str]]:
        """Return the ports at `a` and at `b` of every connection between them."""
        listed = ["ss", "-H", "-t", "-n", "state", "established", "dst", self.host(b).address]
        said = command(*inside(self.host(a).namespace, *listed))
        ends = [line.split()[2:4] for line in said.splitlines()]
        return [(mine.rpartition(":")[2], theirs.rpartition(":")[2]) for mine, theirs in ends]

    def throttle(self, name: str, rate: str) -> None:
        """Let only so much per second in and out of a host, such as `1mbit`."""
        self._throttled.add(name)
        for namespace, device in self._ends(name):
            words = f"qdisc replace dev {device} root tbf rate {rate} burst 16kb latency 500ms"
            command("tc", "-n", namespace, *words.split())

    def release(self, name: str) -> None:
        """Give a host its full speed back."""
        self._throttled.discard(name)
        for namespace, device in self._ends(name):
            with contextlib.suppress(OSError):
                command("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")

    def _make(self, name: str, number: int) -> Host:
        host = Host(f"{self.prefix}{name}", name, f"10.77.0.{number}")
        namespaces.make(host.namespace)
        # Both ends are born where they belong; nothing shows up in the machine's own network.
        words = f"add p{number} type veth peer name eth0 netns {host.namespace}"
        command("ip", "-n", self._hub, "link", *words.split())
        words = f"set p{number} master br0 up"
        command("ip", "-n", self._hub, "link", *words.split())
        command("ip", "-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        host.plug_in()
        return host

    def _ends(self, name: str) -> Iterator[tuple[str, str]]:
        host = self.host(name)
        yield host.namespace, "eth0"
        yield self._hub, f"p{host.address.rpartition('.')[2]}"

    def _pair(self, a: str, b: str) -> str:
        return f"{self.host(a).address} . {self.host(b).address}"

    def _ways_of(self, name: str) -> list[str]:
        others = [host.name for host in self.hosts if host.name != name]
        return [self._pair(*way) for other in others for way in ((name, other), (other, name))]

    def _add(self, which: str, elements: list[str]) -> None:
        if elements:
            self._nft(f"add element bridge torture {which} {{ {', '.join(elements)} }}")

    def _remove(self, which: str, elements: list[str]) -> None:
        for element in elements:
            # Whether it is there or not: adding first makes that all the same.
            self._nft(
                f"add element bridge torture {which} {{ {element} }};"
                f"delete element bridge torture {which} {{ {element} }}"
            )

    def _nft(self, rules: str) -> None:
        done = subprocess.run(
            inside(self._hub, "nft", "-f", "-"), input=rules, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise OSError(f"nft: {done.stderr.strip()}")
