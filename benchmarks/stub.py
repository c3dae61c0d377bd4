"""A stub agent: speaks the real protocol, and reports every task as succeeded at once.

What remains is the control plane: submit, placement, lease, delivery, report, commit. Run as
`python -m benchmarks.stub URL TOKEN_FILE`; it prints the numbers of accepted and of stale reports
whenever they have changed.
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
"""Room for 2,500 concurrent tasks of the benchmark."""
USAGE = Usage(cpu_seconds=0.001, peak_memory_mb=1.0, wall_seconds=0.001)
PRINT_INTERVAL_SECONDS = 0.02


class Stub:
    """One incarnation of the stub agent, from its join until it is killed."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._held: set[wire.AttemptRef] = set()
        self._reports = ReportSender(gateway, self._on_acknowledged, lambda: 0)
        self._counts = {True: 0, False: 0}

    async def run(self, token: str) -> None:
        """Join, then poll, send heartbeats and report until cancelled."""
        self._gateway.key = token
        key = f"dulynode_{secrets.token_urlsafe(32)}"
        join = wire.JoinRequest(
            name=f"stub-{secrets.token_hex(4)}", key=key, capacity=wire.capacity(CAPACITY)
        )
        joined = await self._gateway.join(join, timeout=10)
        self._gateway.key = key
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll(joined.incarnation))
            group.create_task(self._send_heartbeats(joined))
            group.create_task(self._reports.run(joined.incarnation))
            group.create_task(self._print_counts())

    async def _poll(self, incarnation: int) -> None:
        latest = 0
        while True:
            poll = wire.PollRequest(
                incarnation=incarnation, held=list(self._held), wait=25.0, latest=latest
            )
            response = await self._gateway.call("poll", poll, wire.PollResponse, timeout=35)
            latest = max([latest, *(assignment.ref.token for assignment in response.start)])
            new = [a.ref for a in response.start if a.ref not in self._held]
            for ref in new:
                self._held.add(ref)
                self._reports.add(_report(ref), None)
            if not new and response.start:
                await asyncio.sleep(IDLE_POLL_PAUSE_SECONDS)

    async def _send_heartbeats(self, joined: wire.JoinResponse) -> None:
        while True:
            heartbeat = wire.Heartbeat(incarnation=joined.incarnation, held=list(self._held))
            await self._gateway.call("heartbeat", heartbeat, wire.HeartbeatResponse, timeout=10)
            await asyncio.sleep(joined.heartbeat_interval)

    def _on_acknowledged(self, ref: wire.AttemptRef, accepted: bool) -> None:
        self._held.discard(ref)
        self._counts[accepted] += 1

    async def _print_counts(self) -> None:
        printed = None
        while True:
            if printed != self._counts:
                printed = dict(self._counts)
                print(printed[True], printed[False], flush=True)
            await asyncio.sleep(PRINT_INTERVAL_SECONDS)


def _report(ref: wire.AttemptRef) -> wire.AttemptReport:
    return wire.AttemptReport(
        ref=ref, outcome=Outcome.SUCCEEDED, exit_code=0, ran=0.001, usage=USAGE
    )


class Counts:
    """The counts that a stub has printed, read by the process that started it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.accepted = 0
        self.stale = 0
        self._output = process.stdout
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, accepted: int, timeout: float = 120.0) -> None:
        """Wait until `accepted` reports were accepted; raises if the stub ends or time runs out."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self.accepted < accepted:
                if not self._reader.is_alive() or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"the stub agent finished {self.accepted:,} of {accepted:,} tasks"
                    )
                self._changed.wait(1.0)

    def close(self) -> None:
        """Close the pipe to a stub that has ended."""
        self._reader.join()
        self._output.close()

    def _read(self) -> None:
        for line in self._output:
            with self._changed:
                self.accepted, self.stale = map(int, line.split())
                self._changed.notify_all()


@contextmanager
def stub(installation: Installation) -> Iterator[Counts]:
    """Run a stub agent for the duration of the block."""
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
