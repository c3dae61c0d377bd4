"""GNU parallel: no queue and no server, one program that runs the lines of its input."""

import subprocess

from benchmarks.peers.system import About, Broker, CheckFailed, Context, Facts, System

TIMEOUT_SECONDS = 90.0


class GnuParallel(System):
    """One `parallel -j2` for each batch of tasks."""

    about = About(
        name="parallel",
        title="GNU parallel",
        program="parallel",
        brokers=(Broker.NONE,),
        settings=(
            "`parallel -j2 --joblog`, tasks on its standard input",
            "for the start latency the program is started once per task",
        ),
        facts=Facts(
            worker_killed="running tasks are lost; `--resume` with the job log runs the rest",
            isolation="a process for each task, as the same user",
            caps="`--timeout` for each task",
            logs="the output of each task in one piece; `--results` writes it to files",
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._log = context.folder / "joblog"
        self._process: subprocess.Popen[str] | None = None
        self._ended = 0

    def prepare(self) -> None:
        """Nothing has to be started."""

    def submit(self, numbers: range, command: list[str]) -> None:
        """Start the program, and write a line for each task."""
        self._log.unlink(missing_ok=True)
        options = ["-j2", "--joblog", str(self._log)]
        # Without a command, each line is passed to a shell, so it must not contain a line break.
        arguments = [] if command[0] == "/bin/sh" else command
        self._process = subprocess.Popen(
            [self.context.program, *options, *arguments], stdin=subprocess.PIPE, text=True
        )
        lines = numbers if arguments else [command[-1] for _ in numbers]
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines))
        self._process.stdin.close()

    def wait(self, numbers: range) -> None:
        """Wait for the program, and count the tasks in its log."""
        if self._process is None or self._process.wait(TIMEOUT_SECONDS) != 0:
            raise CheckFailed("parallel reports that not all tasks succeeded")
        self._process = None
        _, *lines = self._log.read_text().splitlines()
        fields = [line.split("\t") for line in lines]
        if sorted(int(line[0]) for line in fields) != list(range(1, len(numbers) + 1)):
            raise CheckFailed(
                f"the job log has {len(fields)} tasks, but {len(numbers)} were submitted"
            )
        if any(line[6] != "0" for line in fields):
            raise CheckFailed("the job log has tasks that failed")
        self._ended += len(numbers)

    def check(self, total: int) -> None:
        """Compare the number of logged tasks with the submitted ones."""
        if self._ended != total:
            raise CheckFailed(f"{self._ended} of {total} tasks ended")

    def stop(self) -> None:
        """Kill the program if it still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
