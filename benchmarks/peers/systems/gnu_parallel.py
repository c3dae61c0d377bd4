"""GNU parallel: no queue and no server, one program that runs the lines it is given."""

import subprocess

from benchmarks.peers.system import About, Broker, Facts, Place, System, Wrong

PATIENCE = 90.0


class GnuParallel(System):
    """One `parallel -j2` for each batch of tasks."""

    about = About(
        name="parallel",
        title="GNU parallel",
        program="parallel",
        brokers=(Broker.NONE,),
        settings=(
            "`parallel -j2 --joblog`, tasks on its standard input",
            "one at a time means one start of the program for each task",
        ),
        facts=Facts(
            worker_killed="what ran is lost; `--resume` with the job log runs the rest",
            isolation="a process for each task, as the same user",
            caps="`--timeout` for each task",
            logs="each task's output in one piece; `--results` keeps it in files",
        ),
    )

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._log = place.folder / "joblog"
        self._running: subprocess.Popen[str] | None = None
        self._ended = 0

    def prepare(self) -> None:
        """Nothing has to run beforehand."""

    def submit(self, numbers: range, command: list[str]) -> None:
        """Start the program, and write it all of its lines."""
        self._log.unlink(missing_ok=True)
        options = ["-j2", "--joblog", str(self._log)]
        # A line is given to a shell as it is; without a line break in it, no task is two.
        words = [] if command[0] == "/bin/sh" else command
        self._running = subprocess.Popen(
            [self.place.program, *options, *words], stdin=subprocess.PIPE, text=True
        )
        lines = numbers if words else [command[-1] for _ in numbers]
        assert self._running.stdin is not None
        self._running.stdin.write("".join(f"{line}\n" for line in lines))
        self._running.stdin.close()

    def wait(self, numbers: range) -> None:
        """Wait for the program, and count what its log says."""
        if self._running is None or self._running.wait(PATIENCE) != 0:
            raise Wrong("parallel says that not all tasks ended well")
        self._running = None
        _, *lines = self._log.read_text().splitlines()
        fields = [line.split("\t") for line in lines]
        if sorted(int(each[0]) for each in fields) != list(range(1, len(numbers) + 1)):
            raise Wrong(f"the job log has {len(fields)} tasks, and {len(numbers)} were given")
        if any(each[6] != "0" for each in fields):
            raise Wrong("the job log has tasks that did not end well")
        self._ended += len(numbers)

    def check(self, total: int) -> None:
        """Compare what the logs had with what was submitted."""
        if self._ended != total:
            raise Wrong(f"{self._ended} of {total} tasks ended")

    def stop(self) -> None:
        """End the program if it still runs."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
