"""A node without servers: a real executor and a real supervisor, for one test."""

import asyncio
import io
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duly.agent.supervision.supervisor_link
from duly.agent import identity
from duly.agent.gateway import Gateway
from duly.agent.leftovers import sweep
from duly.agent.limits import cgroup_hierarchies
from duly.agent.limits.cgroup import Layout
from duly.agent.preparation import task_users, workspace
from duly.agent.preparation.bundle_cache import BundleCache
from duly.agent.preparation.command_attempts import CommandAttempts
from duly.agent.preparation.command_executor import CommandExecutor
from duly.agent.preparation.ports import Ports
from duly.agent.preparation.unpack import fill
from duly.agent.reporting.task_socket import TaskSocket, listen
from duly.agent.supervision.outcome import Exit, conclude
from duly.agent.supervision.process_tree import read_state
from duly.clock import monotonic
from duly.model.progress import Progress
from duly.model.resources import Resources
from duly.model.task import Outcome, Payload
from duly.wire import Assignment, AttemptRef, AttemptReport, Throttled, UpstreamResult

NOBODY = "nobody"
TRUSTED = 1000.0
TOKENS = 7_000_000
"""What the servers have counted so far, which nobody else needs to know."""
FIRST_PORT = 31_000 + os.getpid() % 150 * 10
"""Ten that no other process of the run takes, nor the kernel for the other end of a connection."""


class Node:
    """Runs attempts, and remembers how they ended."""

    def __init__(self, data: Path, layout: Layout, chosen: task_users.Users) -> None:
        self.data = data
        self.layout = layout
        self.users = chosen
        self.mark = identity.instance_name(data)
        self.work = workspace.root(data, self.mark, shared=chosen.runs_as_others)
        self.outputs: asyncio.Queue[tuple[AttemptRef, int]] = asyncio.Queue()
        self.left: list[str] = []
        self.said: list[tuple[AttemptRef, Progress | Throttled]] = []
        self.listener = listen(self.work, self.mark, everybody=chosen.runs_as_others)
        self.socket = self.listener.getsockname()
        self._tasks = itertools.count(1)
        self._ends: dict[AttemptRef, asyncio.Future[Exit]] = {}
        self.attempts = CommandAttempts(
            work=self.work,
            spool=data / "spool",
            users=chosen,
            ports=Ports(FIRST_PORT, FIRST_PORT + 9),
            remove=self.left.append,
            socket=self.socket,
        )
        self.link: duly.agent.supervision.supervisor_link.SupervisorLink
        self.on_measured: Callable[[list[Any]], None] = lambda _: None

    def executor(self, gateway: Gateway) -> CommandExecutor:
        """Return an executor of the attempts, for a session."""
        cache = BundleCache(self.data / "bundles", 10**6)
        executor = CommandExecutor(gateway, self.attempts, cache, self.users)
        executor.link = self.link
        return executor

    def start(
        self,
        *command: str,
        source: str | None = None,
        script_path: str | None = None,
        env: dict[str, str] | None = None,
        stdin: str | None = None,
        cap: float = 60.0,
        grace: float = 0.3,
        cpu_milli: int = 100,
        cpu_quota: bool = False,
        memory_mb: int = 256,
        disk_mb: int = 0,
        log_limit: int = 2**20,
        ports: int = 0,
        inputs: dict[str, bytes] | None = None,
        bundle: bytes | None = None,
        tenant: int | None = 1,
    ) -> AttemptRef:
        """Start an attempt, with inputs and a bundle that were fetched before."""
        task = next(self._tasks)
        ref = AttemptRef(task, 1, TOKENS + task)
        assignment = Assignment(
            ref=ref,
            payload=Payload(
                command=list(command) or None,
                source=source,
                script_path=script_path,
                env=env or {},
                stdin=stdin,
            ),
            resources=Resources(
                cpu_milli=cpu_milli, memory_mb=memory_mb, disk_mb=disk_mb, ports=ports
            ),
            execution_cap=cap,
            grace=grace,
            idempotency_key=f"key-{task}",
            log_limit=log_limit,
            result_limit=1024,
            inputs_limit=None if inputs is None else 1024,
            tenant=tenant,
            cpu_quota=cpu_quota,
        )
        if inputs is not None:
            results = [UpstreamResult(name, result) for name, result in inputs.items()]
            workspace.write_inputs(self.attempts.inputs_of(ref), results)
        unpacked = None if bundle is None else self._unpack(ref, bundle)
        self._ends[ref] = asyncio.get_running_loop().create_future()
        failed = self.attempts.start(assignment, self.link, unpacked)
        if failed is not None:
            self._ends[ref].set_result(failed)
        return ref

    def _unpack(self, ref: AttemptRef, bundle: bytes) -> Any:
        folder, user = self.attempts.bundle_of(ref), self.users.take()
        with io.BufferedReader(io.BytesIO(bundle)) as archive:  # type: ignore[arg-type]
            Path(folder).mkdir(mode=0o700)
            fill(archive, folder, user, most_bytes=2**20)
        return SimpleNamespace(folder=folder, user=user)

    async def end(
        self, ref: AttemptRef, intent: Outcome | None = None
    ) -> tuple[Exit, AttemptReport]:
        """Wait until nothing of an attempt is left, and return what would be reported."""
        async with asyncio.timeout(30):
            end = await self._ends[ref]
        return end, self.attempts.report(ref, conclude(end, intent))

    async def run(self, *command: str, **options: Any) -> AttemptReport:
        """Start an attempt and wait for its end."""
        _, report = await self.end(self.start(*command, **options))
        return report

    def command(self, verb: str, ref: AttemptRef) -> None:
        """Have something done to a running attempt."""
        self.link.send(verb, self.attempts.find(ref).id)

    def hear(self, name: str, subject: Any) -> None:
        """Take in what the supervisor says."""
        if name == "output":
            local = self.attempts.by_id(subject[0])
            if local is not None:
                self.outputs.put_nowait((local.ref, subject[1]))
        elif name == "exited":
            ended = self.attempts.exited(subject)
            assert ended is not None
            self._ends[ended[0]].set_result(ended[1])
        elif name == "measured":
            self.on_measured(subject)

    @property
    def supervisor(self) -> int:
        """Return the process id of the supervisor, once it runs."""
        return int((self.data / "supervisor.lock").read_text())


def new_data() -> Path:
    """Make a data folder that every user can pass through."""
    data = Path(tempfile.mkdtemp(prefix="duly-agent-"))
    data.chmod(0o755)
    return data


def spawners(node):
    """Return the processes that start the tasks of a node: the supervisor's own copies."""
    name = cmdline(node.supervisor)
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    states = [(pid, read_state(pid)) for pid in pids]
    return [
        pid
        for pid, state in states
        if state is not None and state.parent == node.supervisor and cmdline(pid) == name
    ]


def cmdline(pid):
    """Return how a process was started; nothing if it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()


@asynccontextmanager
async def running(mode: str):
    """Run a node in one of the modes: `cgroup`, or without: `uid`, `shared`."""
    data = new_data()
    chosen = task_users.choose(NOBODY if mode == "shared" and os.geteuid() == 0 else None)
    layout = Layout()
    if mode == "cgroup":
        layout = cgroup_hierarchies.find(
            identity.instance_name(data), limit_processes=not chosen.own_uids
        )
    node = Node(data, layout, chosen)
    workspace.make_root(node.work)
    (data / "spool").mkdir()
    node.link = await duly.agent.supervision.supervisor_link.start(
        data, layout, own_uids=chosen.own_uids, on_event=node.hear
    )
    node.link.send("trust", monotonic() + TRUSTED)
    hear = lambda attempt, said: node.said.append((attempt.ref, said))  # noqa: E731
    try:
        with TaskSocket(node.listener, node.attempts.by_caller, hear):
            yield node
    finally:
        await node.link.close()
        sweep(node.mark, node.work, data / "spool", chosen)
        chosen.close()
        shutil.rmtree(node.work, ignore_errors=True)
        shutil.rmtree(data)


class Doorbell:
    """A named pipe through which a task tells the test that it has come so far."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "doorbell"
        os.mkfifo(self.path, 0o666)
        self.path.chmod(0o666)
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self._buffer = b""

    async def ring(self) -> str:
        """Wait for the next line."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(20):
            while b"\n" not in self._buffer:
                ready = asyncio.Event()
                loop.add_reader(self._fd, ready.set)
                await ready.wait()
                loop.remove_reader(self._fd)
                self._buffer += os.read(self._fd, 4096)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def rings(self) -> int:
        """Return how many lines have come since the last look, without waiting."""
        with suppress(BlockingIOError):
            self._buffer += os.read(self._fd, 65536)
        count = self._buffer.count(b"\n")
        self._buffer = b""
        return count

    def close(self) -> None:
        """Take it down."""
        os.close(self._fd)
        self.path.unlink()


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
