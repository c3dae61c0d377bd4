"""Two Python processes that call subprocess.run in a loop: a queue without overhead.

No queue for Python functions can be faster, because its workers have to do the same for each task.
The overhead of a queue is its distance from this baseline.
"""

import multiprocessing
from multiprocessing.process import BaseProcess

from benchmarks.peers.python_queue import TIMEOUT_SECONDS, PythonQueue
from benchmarks.peers.system import About, Broker, CheckFailed, Context, Facts


class TwoLoops(PythonQueue):
    """The same function as for the queues, called without a queue."""

    workers = 0
    about = About(
        name="loops",
        title="two loops, no queue",
        is_peer=False,
        brokers=(Broker.NONE,),
        settings=("two Python processes, each of which calls the function for half of the tasks",),
        facts=Facts(
            worker_killed="running and waiting tasks are lost",
            isolation="a process for each task, as the same user",
            caps="none",
            logs="none",
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._loops: list[BaseProcess] = []

    def work(self) -> None:
        """There are no workers beside the two loops."""

    def submit(self, numbers: range, command: list[str]) -> None:
        """Start both loops, each over every other number."""
        context = multiprocessing.get_context("fork")
        halves = [half for half in (numbers[::2], numbers[1::2]) if half]
        self._loops = [context.Process(target=self._loop, args=(half, command)) for half in halves]
        for loop in self._loops:
            loop.start()

    def _loop(self, numbers: range, command: list[str]) -> None:
        function = self.function()
        for number in numbers:
            function(number, command)

    def wait(self, numbers: range) -> None:
        """Wait until both loops have ended."""
        for loop in self._loops:
            loop.join(TIMEOUT_SECONDS)
            if loop.exitcode != 0:
                raise CheckFailed("a loop failed")

    def stop(self) -> None:
        """Kill a loop that still runs."""
        for loop in self._loops:
            loop.kill()
            loop.join()
