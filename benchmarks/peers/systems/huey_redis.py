"""Huey with Redis as its storage: small and fast, with weaker guarantees than the others."""

from typing import TYPE_CHECKING

from benchmarks.peers.python_queue import PythonQueue
from benchmarks.peers.system import About, Broker, Facts

if TYPE_CHECKING:
    from huey import RedisHuey
    from huey.api import TaskWrapper

WORKERS = 4


class HueyRedis(PythonQueue):
    """One consumer with worker processes that block on the queue."""

    about = About(
        name="huey",
        title="Huey",
        packages=("huey[redis]",),
        brokers=(Broker.REDIS, Broker.REDIS_ALWAYS),
        settings=(
            f"`huey_consumer -k process -w {WORKERS}`, a blocking read, no results stored",
            "submitted one by one: there is no batch",
        ),
        facts=Facts(
            worker_killed="lost: a task is removed from Redis before it runs, without an "
            "acknowledgement afterwards",
            isolation="none: tasks share the worker's process, user and memory",
            caps="a time limit for each task in process workers",
            logs="the consumer's own log; the function has to keep the output of a command",
        ),
    )

    def huey(self) -> "tuple[RedisHuey, TaskWrapper]":
        """Return the queue, and its one task."""
        from huey import RedisHuey

        huey = RedisHuey("peers", url=self.context.broker, blocking=True, results=False)
        return huey, huey.task(name="run")(self.function())

    def work(self) -> None:
        """Run the consumer as `huey_consumer` does."""
        huey, _ = self.huey()
        huey.create_consumer(workers=WORKERS, worker_type="process").run()

    def prepare(self) -> None:
        """Start the consumer, and connect."""
        super().prepare()
        _, self._send = self.huey()

    def submit(self, numbers: range, command: list[str]) -> None:
        """Push task by task."""
        for number in numbers:
            self._send(number, command)
