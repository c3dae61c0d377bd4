"""Polls the cluster: which servers respond, which nodes are ready, which server leads.

It is a separate process on the clients' host, so that nothing else delays it. Recovery times are
computed from its file.
"""

import asyncio
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp

from duly import clock

INTERVAL_SECONDS = 0.5
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=2.0)


@dataclass(frozen=True)
class WatchOptions:
    """The options of this process, in a private file because they include a key."""

    key: str
    servers: dict[str, str]
    """The URLs of the servers by the names of their hosts."""
    file: str

    def write(self, file: Path) -> None:
        file.touch(mode=0o600)
        file.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Observation:
    """The state of the cluster at one time, seen by a client."""

    at: float
    servers: frozenset[str]
    """The hosts of the servers that are ready."""
    nodes: frozenset[str]
    leader: str | None

    def shows(self, names: Iterable[str]) -> bool:
        """Return True if a server leads, and all of these servers and nodes are ready."""
        return self.leader is not None and self.servers | self.nodes >= set(names)


def read(path: Path) -> list[Observation]:
    """Return all observations, in order."""
    return [_decode(line) for line in path.read_text().splitlines()]


def latest(path: Path) -> Observation | None:
    """Return the last observation, or None if there is none."""
    if not path.exists():
        return None
    line = path.read_text().rpartition("\n")[0].rpartition("\n")[2]
    return _decode(line) if line else None


async def observe(session: aiohttp.ClientSession, servers: dict[str, str]) -> Observation:
    """Query every server once; `servers` are their URLs by name."""
    at = clock.monotonic()
    responses = await asyncio.gather(*(_get(session, f"{url}/readyz") for url in servers.values()))
    up = [name for name, response in zip(servers, responses, strict=True) if response is not None]
    for name in up:
        nodes = await _get(session, f"{servers[name]}/v1/nodes")
        listed = await _get(session, f"{servers[name]}/v1/servers")
        if nodes is not None and listed is not None:
            leading = [server["name"] for server in json.loads(listed)["items"] if server["duties"]]
            ready = [
                node["name"] for node in json.loads(nodes)["items"] if node["status"] == "ready"
            ]
            return Observation(at, frozenset(up), frozenset(ready), leading[0] if leading else None)
    return Observation(at, frozenset(up), frozenset(), None)


def _decode(line: str) -> Observation:
    fields = json.loads(line)
    sets = {name: frozenset(fields[name]) for name in ("servers", "nodes")}
    return Observation(**{**fields, **sets})


async def _get(session: aiohttp.ClientSession, url: str) -> bytes | None:
    """Return the body of a response with status 200, else None."""
    try:
        async with session.get(url) as response:
            return await response.read() if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError):
        return None


async def main(options: WatchOptions) -> None:
    headers = {"Authorization": f"Bearer {options.key}"}
    with Path(options.file).open("a", buffering=1) as file:
        async with aiohttp.ClientSession(headers=headers, timeout=REQUEST_TIMEOUT) as session:
            while True:
                observation = await observe(session, options.servers)
                fields = {
                    **asdict(observation),
                    "servers": [*observation.servers],
                    "nodes": [*observation.nodes],
                }
                file.write(json.dumps(fields) + "\n")
                await asyncio.sleep(
                    max(0.0, INTERVAL_SECONDS - (clock.monotonic() - observation.at))
                )


if __name__ == "__main__":
    asyncio.run(main(WatchOptions(**json.loads(Path(sys.argv[1]).read_text()))))
