"""awa with PostgreSQL: a queue whose engine is written in Rust."""

import asyncio
import signal
from dataclasses import dataclass

from benchmarks.peers.python_queue import PythonQueue
from benchmarks.peers.system import About, Broker, Facts

CONCURRENCY = 16
QUEUE = "peers"


@dataclass
class Run:
    """The arguments of a task."""

    number: int
    command: list[str]


class AwaPostgres(PythonQueue):
    """Two worker processes, each with an event loop."""

    workers = 2
    about = About(
        name="awa",
        title="awa",
        packages=("awa-pg",),
        brokers=(Broker.POSTGRES,),
        settings=(
            f"two worker processes, each with {CONCURRENCY} tasks at a time in its event loop; "
            "commands in threads",
            "PostgreSQL with the programs and settings that Duly embeds, fsync on",
            "submitted in one batch with `enqueue_many_copy`",
        ),
        facts=Facts(
            worker_killed="rescued automatically once its heartbeat is stale",
            isolation="none: tasks share the worker's process, user and memory",
            caps="a deadline for each queue",
            logs="the worker's own log; the function has to keep the output of a command",
        ),
    )

    def address(self) -> str:
        """Return the address of PostgreSQL; its library demands a host, and goes by the socket."""
        return self.context.broker.replace("@/", "@localhost/", 1)

    def work(self) -> None:
        """Run a worker until it is terminated."""
        asyncio.run(self._work())

    async def _work(self) -> None:
        from awa import AsyncClient

        client, function = AsyncClient(self.address()), self.function()

        @client.task(Run, queue=QUEUE)
        async def run(job):  # type: ignore[no-untyped-def]
            arguments = job.args
            if arguments.command:
                await asyncio.to_thread(function, arguments.number, arguments.command)
            else:
                function(arguments.number, arguments.command)

        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        await client.start([(QUEUE, CONCURRENCY)])
        await stopped.wait()
        await client.shutdown()

    def prepare(self) -> None:
        """Create the tables, start the workers, and connect."""
        from awa import Client

        self._client = Client(self.address())
        self._client.migrate()
        self._client.install_queue_storage()
        super().prepare()

    def submit(self, numbers: range, command: list[str]) -> None:
        """Store all tasks with COPY; a single one by an insert."""
        tasks = [Run(number, command) for number in numbers]
        if len(tasks) == 1:
            self._client.insert(tasks[0], queue=QUEUE)
        else:
            self._client.enqueue_many_copy(tasks, queue=QUEUE)
