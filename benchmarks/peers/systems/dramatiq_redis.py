"""Dramatiq with Redis as its broker.

By default it acknowledges after the task, and redelivers the tasks of a dead worker.
"""

import os
import sys
from typing import TYPE_CHECKING

from benchmarks.peers.python_queue import PythonQueue
from benchmarks.peers.system import About, Broker, Context, Facts

if TYPE_CHECKING:
    import dramatiq

WORKER = ("--processes", "2", "--threads", "4")
PREFETCH = {"dramatiq_queue_prefetch": "64"}
"""The environment variable for the number of messages that a process prefetches."""


class DramatiqRedis(PythonQueue):
    """Two processes, each with some threads that run tasks."""

    about = About(
        name="dramatiq",
        title="Dramatiq",
        packages=("dramatiq[redis]",),
        brokers=(Broker.REDIS, Broker.REDIS_ALWAYS),
        settings=(
            f"`dramatiq {' '.join(WORKER)}`, the default middleware, `dramatiq_queue_prefetch=64`",
            "submitted one by one with `broker.enqueue`: there is no batch",
        ),
        facts=Facts(
            worker_killed="redelivered by one in about a thousand later calls, at random, once its "
            "heartbeat is 60 s old",
            isolation="none: tasks are threads of the worker's process",
            caps="a time limit for each task, raised as an exception between two bytecodes: it "
            "does not interrupt a command that the task waits for",
            logs="the worker's own log; the function has to keep the output of a command",
        ),
    )

    def actor(self) -> "dramatiq.Actor[..., None]":
        """Return the one actor, on a broker of its own."""
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        dramatiq.set_broker(RedisBroker(url=self.context.broker))
        return dramatiq.actor(self.function(), actor_name="run")

    def worker_command(self) -> list[str]:
        """Return the command line of Dramatiq, which calls `declare` for its broker."""
        return [sys.executable, "-m", "dramatiq", f"{__name__}:declare", *WORKER]

    def work(self) -> None:
        """Declare the actor for the worker of Dramatiq's command line."""
        self.actor()

    def prepare(self) -> None:
        """Start the worker, and connect."""
        os.environ.update(PREFETCH)
        super().prepare()
        self._actor = self.actor()

    def submit(self, numbers: range, command: list[str]) -> None:
        """Enqueue message by message."""
        for number in numbers:
            self._actor.send(number, command)


def declare() -> None:
    """Set up the broker in each of Dramatiq's processes."""
    DramatiqRedis(Context.from_environment()).work()
