"""Two Python processes that call subprocess.run in a loop: a queue that costs nothing.

No queue for Python functions can be quicker than this, because each of its workers has to do
the same for each task. What a queue costs is how far it stays below this row.
"""

import multiprocessing
from multiprocessing.process import BaseProcess

from benchmarks.peers.python_queue import PATIENCE, PythonQueue
from benchmarks.peers.system import About, Broker, Facts, Place, Wrong


class TwoLoops(PythonQueue):
    """The same function as for the queues, called without a queue."""

    workers = 0
    about = About(
        name="loops",
        title="two loops, no queue",
        is_peer=False,
        brokers=(Broker.NONE,),
        settings=(
            "two Python processes, each calls the function for half of the tasks, and no queue",
        ),
        facts=Facts(
            worker_killed="what ran and what waited is lost",
            isolation="a process for each task, as the same user",
            caps="none",
            logs="none",
        ),
    )

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._loops: list[BaseProcess] = []

    def work(self) -> None:
        """There is no worker beside the two loops."""

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
        """Wait until both loops are through."""
        for loop in self._loops:
            loop.join(PATIENCE)
            if loop.exitcode != 0:
                raise Wrong("a loop did not end well")

    def stop(self) -> None:
        """End a loop that still runs."""
        for loop in self._loops:
            loop.kill()
            loop.join()
