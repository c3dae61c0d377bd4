"""What a request takes of a server's memory is bounded by the size of its body."""

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
"""Peak memory of a request, in sizes of its body."""
ALLOWANCE = 4 * MEBIBYTE
"""What any request may take: the measure is of a whole process, in pages."""


class Server:
    """A real server, and how much memory it takes for a request."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._program: Program = lab.start_server()
        self.client = httpx.Client(
            base_url=lab.url, headers={"authorization": f"Bearer {lab.key}"}, timeout=60
        )
        self.node_key = generate_key("dulynode")
        self.client.post("/v1/tasks", json={"command": ["true"]}).raise_for_status()
        self._idle = self._memory("VmRSS")

    def send(self, asked: HostileBody) -> tuple[int, int]:
        """Return the status of the answer, and the bytes beyond an idle server's meanwhile."""
        (Path("/proc") / str(self._program.pid) / "clear_refs").write_text("5")
        headers = {"content-type": asked.media_type}
        if "/gateway/" in asked.path:
            headers["authorization"] = f"Bearer {self.node_key}"
        answer = self.client.request(asked.method, asked.path, content=asked.body, headers=headers)
        return answer.status_code, self._memory("VmHWM") - self._idle

    def join(self) -> None:
        """Become a node, for the routes of agents."""
        token = self.client.post("/v1/node-tokens").json()["token"]
        self.client.post(
            "/v1/nodes",
            json={"name": "n", "capacity": {"cpu": 1}, "key": self.node_key},
            headers={"authorization": f"Bearer {token}"},
        ).raise_for_status()

    def _memory(self, name: str) -> int:
        status = (Path("/proc") / str(self._program.pid) / "status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found, status
        return int(found[1]) * 1024


@pytest.fixture
def server(lab: Lab) -> Iterator[Server]:
    server = Server(lab)
    yield server
    server.client.close()


def excesses(server: Server, bodies: Iterator[HostileBody]) -> list[str]:
    """Return which bodies take too much memory, or have an answer that they should not have."""
    found = []
    for asked in bodies:
        status, grown = server.send(asked)
        factor = grown / len(asked.body)
        line = f"{asked.name}: {status}, {len(asked.body)} bytes, {factor:.1f} times as much"
        print(line)
        if status not in asked.statuses or grown > MAX_FACTOR * len(asked.body) + ALLOWANCE:
            found.append(line)
    return found


def test_no_body_of_many_tasks_takes_more_than_ten_times_its_size(server: Server) -> None:
    assert excesses(server, hostile_bodies.of_batches(8 * MEBIBYTE)) == []


@pytest.mark.parametrize("task", [hostile_bodies.SMALL_TASK, hostile_bodies.USUAL_TASK])
@pytest.mark.parametrize("path", ["/v1/tasks/batch", "/v1/graphs"])
def test_a_batch_takes_no_more_than_is_claimed_for_it(
    server: Server, path: str, task: bytes
) -> None:
    tasks = [task.replace(b"#", b"%d" % number) for number in range(50_000)]
    body = b'{"tasks":[' + b",".join(tasks) + b"]}"
    status, grown = server.send(HostileBody("", "POST", path, body))
    print(path, len(body), f"{grown / len(body):.1f} times, {grown // len(tasks)} bytes per task")
    assert status == 201
    assert grown <= estimated_memory(len(body), len(tasks))


def test_no_body_of_one_thing_takes_more_than_ten_times_its_size(server: Server) -> None:
    client = server.client
    made = client.post("/v1/tasks", json={"command": ["true"]}).json()["id"]
    body = {"daily": "06:30", "task": {"command": ["true"]}}
    schedule = client.post("/v1/schedules", json=body).json()["id"]
    size = 2 * MEBIBYTE - 1000
    assert excesses(server, hostile_bodies.of_single_requests(size, made, schedule)) == []


def test_no_message_of_a_node_takes_more_than_ten_times_its_size(server: Server) -> None:
    server.join()
    assert excesses(server, hostile_bodies.of_nodes(8 * MEBIBYTE)) == []
