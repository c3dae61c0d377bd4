"""Polls the cluster: which servers respond, which nodes are ready, which server leads.

A process of its own in the client's network, so that nothing else delays it. Its file tells
afterwards when all was well again after a fault.
"""

import asyncio
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp

from duly import clock

INTERVAL = 0.5
PATIENCE = aiohttp.ClientTimeout(total=2.0)


@dataclass(frozen=True)
class Orders:
    """What the runner tells this process, in a file because a key is in it."""

    key: str
    servers: dict[str, str]
    """The URLs of the servers by the names of their hosts."""
    file: str

    def write(self, file: Path) -> None:
        file.touch(mode=0o600)
        file.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Observation:
    """What was seen at one moment."""

    at: float
    servers: frozenset[str]
    """The hosts whose servers are ready for work."""
    nodes: frozenset[str]
    leader: str | None

    def shows(self, names: Iterable[str]) -> bool:
        """Say whether somebody leads, and all of these servers and nodes are there."""
        return self.leader is not None and self.servers | self.nodes >= set(names)


def read(path: Path) -> list[Observation]:
    """Return everything that was seen, in order."""
    return [_sight(line) for line in path.read_text().splitlines()]


def latest(path: Path) -> Observation | None:
    """Return what was seen last, None as long as that is nothing."""
    if not path.exists():
        return None
    seen = path.read_text().rpartition("\n")[0].rpartition("\n")[2]
    return _sight(seen) if seen else None


async def look(session: aiohttp.ClientSession, servers: dict[str, str]) -> Observation:
    """Ask every server once; `servers` are their URLs by name."""
    at = clock.monotonic()
    asked = await asyncio.gather(*(_ask(session, f"{url}/readyz") for url in servers.values()))
    up = [name for name, answer in zip(servers, asked, strict=True) if answer is not None]
    for name in up:
        nodes = await _ask(session, f"{servers[name]}/v1/nodes")
        listed = await _ask(session, f"{servers[name]}/v1/servers")
        if nodes is not None and listed is not None:
            leading = [one["name"] for one in json.loads(listed)["items"] if one["duties"]]
            fit = [one["name"] for one in json.loads(nodes)["items"] if one["status"] == "ready"]
            return Observation(at, frozenset(up), frozenset(fit), leading[0] if leading else None)
    return Observation(at, frozenset(up), frozenset(), None)


def _sight(line: str) -> Observation:
    fields = json.loads(line)
    sets = {name: frozenset(fields[name]) for name in ("servers", "nodes")}
    return Observation(**{**fields, **sets})


async def _ask(session: aiohttp.ClientSession, url: str) -> bytes | None:
    """Return what is answered, None when that is no 200."""
    try:
        async with session.get(url) as answer:
            return await answer.read() if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError):
        return None


async def main(orders: Orders) -> None:
    headers = {"Authorization": f"Bearer {orders.key}"}
    with Path(orders.file).open("a", buffering=1) as file:
        async with aiohttp.ClientSession(headers=headers, timeout=PATIENCE) as session:
            while True:
                sight = await look(session, orders.servers)
                fields = {**asdict(sight), "servers": [*sight.servers], "nodes": [*sight.nodes]}
                file.write(json.dumps(fields) + "\n")
                await asyncio.sleep(max(0.0, INTERVAL - (clock.monotonic() - sight.at)))


if __name__ == "__main__":
    asyncio.run(main(Orders(**json.loads(Path(sys.argv[1]).read_text()))))
