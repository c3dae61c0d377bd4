"""Dramatiq with Redis as its broker.

It acknowledges after the task and repeats what a dead worker had taken; that is its default.
"""

import os
import sys
from typing import TYPE_CHECKING

from benchmarks.peers.python_queue import PythonQueue
from benchmarks.peers.system import About, Broker, Facts, Place

if TYPE_CHECKING:
    import dramatiq

WORKER = ("--processes", "2", "--threads", "4")
PREFETCH = {"dramatiq_queue_prefetch": "64"}
"""The environment variable by which Dramatiq is told how much a process takes at once."""


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
            worker_killed="given out again by one of the next thousand calls, by chance, after its "
            "heartbeat is 60 s old",
            isolation="none: tasks are threads of the worker's process",
            caps="a time limit for each task, raised as an exception between two bytecodes: it "
            "does not reach a command that the task waits for",
            logs="the worker's own log; a command's output is the function's to keep",
        ),
    )

    def actor(self) -> "dramatiq.Actor[..., None]":
        """Return the one actor, on a broker of its own."""
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        dramatiq.set_broker(RedisBroker(url=self.place.broker))
        return dramatiq.actor(self.function(), actor_name="run")

    def worker_command(self) -> list[str]:
        """Return the command line of Dramatiq, which asks `declare` for its broker."""
        return [sys.executable, "-m", "dramatiq", f"{__name__}:declare", *WORKER]

    def work(self) -> None:
        """Declare what the worker of Dramatiq's own command line is to run."""
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
    """Set the broker up, in each of Dramatiq's processes."""
    DramatiqRedis(Place.from_environment()).work()
