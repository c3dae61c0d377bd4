"""xargs -P2: what a shell script would use."""

import subprocess

from benchmarks.peers.system import About, Broker, CheckFailed, Context, Facts, System

TIMEOUT_SECONDS = 90.0


class Xargs(System):
    """One `xargs -P2` for each batch of tasks; its only record is the exit status."""

    about = About(
        name="xargs",
        title="xargs -P2",
        is_peer=False,
        brokers=(Broker.NONE,),
        settings=("`xargs -P2 -n1`, tasks on its standard input",),
        facts=Facts(
            worker_killed="running and waiting tasks are lost",
            isolation="a process for each task, as the same user",
            caps="none",
            logs="the outputs of all tasks are mixed",
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._process: subprocess.Popen[str] | None = None
        self._ended = 0

    def prepare(self) -> None:
        """Nothing has to be started."""

    def submit(self, numbers: range, command: list[str]) -> None:
        """Start the program, and write a line for each task."""
        self._process = subprocess.Popen(
            ["xargs", "-P2", "-n1", *command], stdin=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{number}\n" for number in numbers))
        self._process.stdin.close()

    def wait(self, numbers: range) -> None:
        """Wait for the program; its exit status shows whether all tasks succeeded."""
        if self._process is None or self._process.wait(TIMEOUT_SECONDS) != 0:
            raise CheckFailed("xargs reports that not all tasks succeeded")
        self._process = None
        self._ended += len(numbers)

    def check(self, total: int) -> None:
        """Compare the number of ended tasks with the submitted ones."""
        if self._ended != total:
            raise CheckFailed(f"{self._ended} of {total} tasks ended")

    def stop(self) -> None:
        """Kill the program if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
