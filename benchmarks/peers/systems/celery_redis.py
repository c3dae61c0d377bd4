"""Celery with Redis as its broker.

Configured as its optimisation guide recommends: a large prefetch for short tasks, late
acknowledgement for tasks that may be repeated, and no results if nobody reads them.
"""

from typing import TYPE_CHECKING, Any

from benchmarks.peers.python_queue import PythonQueue
from benchmarks.peers.system import About, Broker, Facts

if TYPE_CHECKING:
    from celery import Celery

CONFIGURATION: dict[str, Any] = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_ignore_result": True,
    "task_serializer": "json",
    "worker_prefetch_multiplier": 64,
    "worker_hijack_root_logger": False,
    "broker_connection_retry_on_startup": True,
}
WORKER = (
    "worker",
    "--pool=prefork",
    "--concurrency=2",
    "--without-gossip",
    "--without-mingle",
    "--without-heartbeat",
    "--loglevel=WARNING",
)


class CeleryRedis(PythonQueue):
    """One worker with two processes."""

    about = About(
        name="celery",
        title="Celery",
        packages=("celery[redis]",),
        brokers=(Broker.REDIS, Broker.REDIS_ALWAYS),
        settings=(
            "`celery worker --pool=prefork --concurrency=2 --without-gossip --without-mingle "
            "--without-heartbeat`",
            "`task_acks_late`, `task_reject_on_worker_lost`, `task_ignore_result`, JSON, "
            "`worker_prefetch_multiplier = 64`",
            "submitted one by one with `apply_async`: there is no batch",
        ),
        facts=Facts(
            worker_killed="the task of a killed child is redelivered at once; those of a killed "
            "worker after the visibility timeout, by default 1 hour",
            isolation="none: tasks share the worker's process, user and memory",
            caps="time limits, soft and hard, for each task",
            logs="the worker's own log; the function has to keep the output of a command",
        ),
    )

    def app(self) -> "Celery":
        """Return the application, with its one task."""
        from celery import Celery

        # Celery has its own scheme for unix sockets, where others use unix://.
        app = Celery("peers", broker=self.context.broker.replace("unix://", "redis+socket://"))
        app.conf.update(CONFIGURATION)
        app.task(name="run")(self.function())
        return app

    def work(self) -> None:
        """Run the worker as `celery worker` does."""
        self.app().worker_main(list(WORKER))

    def prepare(self) -> None:
        """Start the worker, and connect."""
        super().prepare()
        self._task = self.app().tasks["run"]

    def submit(self, numbers: range, command: list[str]) -> None:
        """Publish message by message over one connection."""
        with self._task.app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                self._task.apply_async((number, command), producer=producer)
