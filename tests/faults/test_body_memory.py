"""The memory of a request is bounded by a multiple of the size of its body."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from duly.api.requests.batch_decoding import estimated_memory
from duly.store.accounts.tenants import generate_key
from tests.faults import hostile_bodies
from tests.faults.hostile_bodies import HostileBody
from tests.faults.lab import Lab
from tests.torture.processes import Program

MEBIBYTE = 2**20
MAX_FACTOR = 10
"""The allowed peak memory of a request, as a multiple of the size of its body."""
ALLOWANCE = 4 * MEBIBYTE
"""Tolerance, because the memory of the whole process is measured."""


class Server:
    """A server process whose memory is measured."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._program: Program = lab.start_server()
        self.client = httpx.Client(
            base_url=lab.url, headers={"authorization": f"Bearer {lab.key}"}, timeout=60
        )
        self.node_key = generate_key("dulynode")
        self.client.post("/v1/tasks", json={"command": ["true"]}).raise_for_status()
        self._idle = self._memory("VmRSS")

    def send(self, request: HostileBody) -> tuple[int, int]:
        """Send a request; return the status, and the peak memory above that of the idle server."""
        (Path("/proc") / str(self._program.pid) / "clear_refs").write_text("5")
        headers = {"content-type": request.media_type}
        if "/gateway/" in request.path:
            headers["authorization"] = f"Bearer {self.node_key}"
        response = self.client.request(
            request.method, request.path, content=request.body, headers=headers
        )
        return response.status_code, self._memory("VmHWM") - self._idle

    def join(self) -> None:
        """Join as a node, for the routes of agents."""
        token = self.client.post("/v1/node-tokens").json()["token"]
        self.client.post(
            "/v1/nodes",
            json={"name": "n", "capacity": {"cpu": 1}, "key": self.node_key},
            headers={"authorization": f"Bearer {token}"},
        ).raise_for_status()

    def _memory(self, name: str) -> int:
        status = (Path("/proc") / str(self._program.pid) / "status").read_text()
        match = re.search(rf"{name}:\s+(\d+) kB", status)
        assert match, status
        return int(match[1]) * 1024


@pytest.fixture
def server(lab: Lab) -> Iterator[Server]:
    server = Server(lab)
    yield server
    server.client.close()


def excesses(server: Server, bodies: Iterator[HostileBody]) -> list[str]:
    """Return the bodies that take too much memory, or get an unexpected status."""
    excessive = []
    for request in bodies:
        status, grown = server.send(request)
        factor = grown / len(request.body)
        line = f"{request.name}: {status}, {len(request.body)} bytes, {factor:.1f} times as much"
        print(line)
        if status not in request.statuses or grown > MAX_FACTOR * len(request.body) + ALLOWANCE:
            excessive.append(line)
    return excessive


def test_no_body_of_many_tasks_takes_more_than_ten_times_its_size(server: Server) -> None:
    assert excesses(server, hostile_bodies.batch_bodies(8 * MEBIBYTE)) == []


@pytest.mark.parametrize("task", [hostile_bodies.SMALL_TASK, hostile_bodies.TYPICAL_TASK])
@pytest.mark.parametrize("path", ["/v1/tasks/batch", "/v1/graphs"])
def test_a_batch_takes_no_more_than_its_estimate(server: Server, path: str, task: bytes) -> None:
    tasks = [task.replace(b"#", b"%d" % number) for number in range(50_000)]
    body = b'{"tasks":[' + b",".join(tasks) + b"]}"
    status, grown = server.send(HostileBody("", "POST", path, body))
    print(path, len(body), f"{grown / len(body):.1f} times, {grown // len(tasks)} bytes per task")
    assert status == 201
    assert grown <= estimated_memory(len(body), len(tasks))


def test_no_other_body_takes_more_than_ten_times_its_size(server: Server) -> None:
    client = server.client
    task = client.post("/v1/tasks", json={"command": ["true"]}).json()["id"]
    body = {"daily": "06:30", "task": {"command": ["true"]}}
    schedule = client.post("/v1/schedules", json=body).json()["id"]
    size = 2 * MEBIBYTE - 1000
    assert excesses(server, hostile_bodies.single_bodies(size, task, schedule)) == []


def test_no_message_of_a_node_takes_more_than_ten_times_its_size(server: Server) -> None:
    server.join()
    assert excesses(server, hostile_bodies.node_messages(8 * MEBIBYTE)) == []
