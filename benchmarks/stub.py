"""A stub agent: speaks the real protocol, and reports every task as succeeded at once.

What is left is the control plane: submit, placement, lease, delivery, report, commit. Run as
`python -m benchmarks.stub URL TOKEN_FILE`; it writes how many reports were accepted, and how
many were not, whenever that has changed.
"""

import asyncio
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.installation import Installation, stop
from duly import wire
from duly.agent.gateway import Gateway
from duly.agent.reporting.reports import ReportSender
from duly.agent.session import IDLE_POLL_PAUSE_SECONDS
from duly.model.resources import Resources
from duly.model.task import Outcome, Usage
from duly.private_file import write_private

CAPACITY = Resources(cpu_milli=25_000, memory_mb=1 << 20, disk_mb=1 << 20)
"""Room for 2,500 of the benchmark's tasks at a time."""
USAGE = Usage(cpu_seconds=0.001, peak_memory_mb=1.0, wall_seconds=0.001)
TOLD_EVERY = 0.02


class Stub:
    """One incarnation, from its join until it is killed."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._held: set[wire.AttemptRef] = set()
        self._reports = ReportSender(gateway, self._answered, lambda: 0)
        self._counts = {True: 0, False: 0}

    async def run(self, token: str) -> None:
        """Be a node."""
        self._gateway.key = token
        key = f"dulynode_{secrets.token_urlsafe(32)}"
        join = wire.JoinRequest(
            name=f"stub-{secrets.token_hex(4)}", key=key, capacity=wire.capacity(CAPACITY)
        )
        joined = await self._gateway.join(join, timeout=10)
        self._gateway.key = key
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll(joined.incarnation))
            group.create_task(self._beat(joined))
            group.create_task(self._reports.run(joined.incarnation))
            group.create_task(self._tell())

    async def _poll(self, incarnation: int) -> None:
        latest = 0
        while True:
            poll = wire.PollRequest(
                incarnation=incarnation, held=list(self._held), wait=25.0, latest=latest
            )
            orders = await self._gateway.call("poll", poll, wire.PollResponse, timeout=35)
            latest = max([latest, *(one.ref.token for one in orders.start)])
            fresh = [one.ref for one in orders.start if one.ref not in self._held]
            for ref in fresh:
                self._held.add(ref)
                self._reports.add(_report(ref), None)
            if not fresh and orders.start:
                await asyncio.sleep(IDLE_POLL_PAUSE_SECONDS)

    async def _beat(self, joined: wire.JoinResponse) -> None:
        while True:
            beat = wire.Heartbeat(incarnation=joined.incarnation, held=list(self._held))
            await self._gateway.call("heartbeat", beat, wire.HeartbeatResponse, timeout=10)
            await asyncio.sleep(joined.heartbeat_interval)

    def _answered(self, ref: wire.AttemptRef, accepted: bool) -> None:
        self._held.discard(ref)
        self._counts[accepted] += 1

    async def _tell(self) -> None:
        told = None
        while True:
            if told != self._counts:
                told = dict(self._counts)
                print(told[True], told[False], flush=True)
            await asyncio.sleep(TOLD_EVERY)


def _report(ref: wire.AttemptRef) -> wire.AttemptReport:
    return wire.AttemptReport(
        ref=ref, outcome=Outcome.SUCCEEDED, exit_code=0, ran=0.001, usage=USAGE
    )


class Counts:
    """What a stub has told, seen from the process that started it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.accepted = 0
        self.stale = 0
        self._told = process.stdout
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, accepted: int, within: float = 120.0) -> None:
        """Wait until so many reports have been accepted; raises when the stub has ended."""
        until = time.monotonic() + within
        with self._changed:
            while self.accepted < accepted:
                if not self._reader.is_alive() or time.monotonic() > until:
                    raise RuntimeError(
                        f"the stub agent came to {self.accepted:,} of {accepted:,} tasks"
                    )
                self._changed.wait(1.0)

    def close(self) -> None:
        """Let go of a stub that has ended."""
        self._reader.join()
        self._told.close()

    def _read(self) -> None:
        for line in self._told:
            with self._changed:
                self.accepted, self.stale = map(int, line.split())
                self._changed.notify_all()


@contextmanager
def stub(installation: Installation) -> Iterator[Counts]:
    """Run a stub agent for as long as the block lasts."""
    with installation.client() as client:
        write_private(installation.folder / "token", client.create_node_token()["token"] + "\n")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.stub"),
            *(installation.url, str(installation.folder / "token")),
        ],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        start_new_session=True,
    )
    counts = Counts(process)
    try:
        yield counts
    finally:
        stop(process)
        counts.close()


async def _main(url: str, token: str) -> None:
    async with Gateway([url]) as gateway:
        await Stub(gateway).run(token)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2]).read_text().strip()))
