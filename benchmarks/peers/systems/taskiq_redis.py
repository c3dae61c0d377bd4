"""taskiq with Redis streams, the broker of its own that acknowledges tasks."""

import asyncio
from typing import TYPE_CHECKING

from benchmarks.peers.python_queue import PythonQueue
from benchmarks.peers.system import About, Broker, Context, Facts

if TYPE_CHECKING:
    from taskiq_redis import RedisStreamBroker

THREADS = 4


class TaskiqRedis(PythonQueue):
    """One worker with two processes."""

    about = About(
        name="taskiq",
        title="taskiq",
        packages=("taskiq", "taskiq-redis"),
        brokers=(Broker.REDIS, Broker.REDIS_ALWAYS),
        settings=(
            f"`taskiq worker --workers 2 --max-threadpool-threads {THREADS}`, "
            "`RedisStreamBroker`, no results stored",
            "submitted one by one: there is no batch",
        ),
        facts=Facts(
            worker_killed="claimed by another worker once it has been idle for longer than "
            "`idle_timeout`, by default ten minutes",
            isolation="none: tasks are threads or coroutines of the worker's process",
            caps="a time limit for each task, which does not end a thread",
            logs="the worker's own log; the function has to keep the output of a command",
        ),
    )

    def broker(self) -> "RedisStreamBroker":
        """Return the broker, with its one task."""
        from taskiq_redis import RedisStreamBroker

        broker = RedisStreamBroker(url=self.context.broker)
        broker.register_task(self.function(), task_name="run")
        return broker

    def worker_command(self) -> list[str]:
        """Return the command that starts the worker."""
        import sys

        return [
            *(sys.executable, "-m", "taskiq", "worker", f"{__name__}:worker_broker"),
            *("--workers", "2", "--max-threadpool-threads", str(THREADS)),
            *("--log-level", "WARNING"),
        ]

    def work(self) -> None:
        """Do nothing: taskiq has its own command."""

    def prepare(self) -> None:
        """Start the worker, and connect."""
        super().prepare()
        self._loop = asyncio.new_event_loop()
        self._broker = self.broker()
        self._loop.run_until_complete(self._broker.startup())

    def submit(self, numbers: range, command: list[str]) -> None:
        """Send task by task over one connection."""
        self._loop.run_until_complete(self._send(numbers, command))

    async def _send(self, numbers: range, command: list[str]) -> None:
        task = self._broker.find_task("run")
        assert task is not None
        for number in numbers:
            await task.kiq(number, command)


def __getattr__(name: str) -> "RedisStreamBroker":
    """Return the broker that taskiq's command imports from this module."""
    if name != "worker_broker":
        raise AttributeError(name)
    return TaskiqRedis(Context.from_environment()).broker()
