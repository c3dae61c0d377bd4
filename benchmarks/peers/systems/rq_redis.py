"""RQ with Redis: a queue that forks a process for each task."""

from typing import TYPE_CHECKING

from benchmarks.peers.python_queue import PythonQueue, run_task
from benchmarks.peers.system import About, Broker, Context, Facts

if TYPE_CHECKING:
    from rq import Queue


def run(number: int, command: list[str]) -> None:
    """Do what the tasks of all queues of functions do; RQ finds it by its name."""
    run_task(Context.from_environment().folder / "ledger", number, command)


class RqRedis(PythonQueue):
    """Two workers that run tasks in their own process, the fastest that RQ offers."""

    workers = 2
    about = About(
        name="rq",
        title="RQ",
        packages=("rq",),
        brokers=(Broker.REDIS, Broker.REDIS_ALWAYS),
        settings=(
            "two workers of the class `SimpleWorker`, which forks no process for a task; no "
            "results stored",
            "submitted in one batch with `enqueue_many`",
        ),
        facts=Facts(
            worker_killed="moved to the failed jobs by a later clean-up, and retried if the job "
            "allows it",
            isolation="none with `SimpleWorker`; else a forked process for each task",
            caps="a time limit for each task",
            logs="the worker's own log; the function has to keep the output of a command",
        ),
    )

    def queue(self) -> "Queue":
        """Return the queue."""
        from redis import Redis
        from rq import Queue

        return Queue("peers", connection=Redis.from_url(self.context.broker))

    def work(self) -> None:
        """Run a worker as `rq worker --worker-class rq.SimpleWorker` does."""
        from rq import SimpleWorker

        queue = self.queue()
        SimpleWorker([queue], connection=queue.connection).work(logging_level="WARNING")

    def prepare(self) -> None:
        """Start the workers, and connect."""
        super().prepare()
        self._queue = self.queue()

    def submit(self, numbers: range, command: list[str]) -> None:
        """Push all tasks in one transaction."""
        from rq import Queue

        self._queue.enqueue_many(
            [Queue.prepare_data(run, args=(number, command), result_ttl=0) for number in numbers]
        )
