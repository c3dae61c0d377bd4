"""xargs -P2: what a shell script would do."""

import subprocess

from benchmarks.peers.system import About, Broker, Facts, Place, System, Wrong

PATIENCE = 90.0


class Xargs(System):
    """One `xargs -P2` for each batch of tasks; its exit status is all it keeps."""

    about = About(
        name="xargs",
        title="xargs -P2",
        is_peer=False,
        brokers=(Broker.NONE,),
        settings=("`xargs -P2 -n1`, tasks on its standard input",),
        facts=Facts(
            worker_killed="what ran and what waited is lost",
            isolation="a process for each task, as the same user",
            caps="none",
            logs="what tasks write is mixed",
        ),
    )

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._running: subprocess.Popen[str] | None = None
        self._ended = 0

    def prepare(self) -> None:
        """Nothing has to run beforehand."""

    def submit(self, numbers: range, command: list[str]) -> None:
        """Start the program, and write it a line for each task."""
        self._running = subprocess.Popen(
            ["xargs", "-P2", "-n1", *command], stdin=subprocess.PIPE, text=True
        )
        assert self._running.stdin is not None
        self._running.stdin.write("".join(f"{number}\n" for number in numbers))
        self._running.stdin.close()

    def wait(self, numbers: range) -> None:
        """Wait for the program, which says whether all ended well."""
        if self._running is None or self._running.wait(PATIENCE) != 0:
            raise Wrong("xargs says that not all tasks ended well")
        self._running = None
        self._ended += len(numbers)

    def check(self, total: int) -> None:
        """Compare what ended with what was submitted."""
        if self._ended != total:
            raise Wrong(f"{self._ended} of {total} tasks ended")

    def stop(self) -> None:
        """End the program if it still runs."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
