"""Duly itself, as `duly up` on one machine, with its own PostgreSQL."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.python_queue import OPEN
from benchmarks.peers.system import About, Broker, CheckFailed, Context, Facts, System
from benchmarks.polling import next_interval

if TYPE_CHECKING:
    from scripts.throwaway import Throwaway

    import duly
    from duly.client.shapes.task_shapes import ResourceFields

RESOURCES: "ResourceFields" = {"cpu": 0.02, "memory_mb": 16, "disk_mb": 1}
TIMEOUT_SECONDS = 90.0
PROCESSES = 2
STOP_TIMEOUT_SECONDS = 15.0


class DulyUp(System):
    """`duly up` in a temporary folder, driven by the Python client."""

    calls_functions = True

    about = About(
        name="duly",
        title="Duly",
        is_peer=False,
        brokers=(Broker.OWN,),
        settings=(
            "`duly up` with no settings, isolation `process`, tasks of 0.02 CPU: 100 at a time",
            f"functions: `duly worker --processes {PROCESSES}` beside it",
            "submitted in one batch with `submit_many`",
        ),
        facts=Facts(
            worker_killed="retried once the node's lease has expired: 15 s after its last "
            "heartbeat, or at once when its agent is back",
            isolation="a process group and a workspace for each task, and its own user "
            "if Duly is run by root",
            caps="time, memory and log size of each task, enforced by a supervisor in a "
            "separate process",
            logs="the output of each attempt, which can be read and followed over HTTP",
        ),
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._up: Throwaway | None = None
        self._client: duly.Client | None = None
        self._single = ""
        self._worker: subprocess.Popen[str] | None = None

    def prepare(self) -> None:
        """Start `duly up` as a user would."""
        from scripts.throwaway import Throwaway

        import duly

        self._up = Throwaway({}).__enter__()
        self._client = duly.Client(self._up.url, self._up.key)

    def submit(self, numbers: range, command: list[str]) -> None:
        """Submit all tasks in one request."""
        assert self._client is not None
        if len(numbers) == 1:
            self._single = self._client.submit(command=command, resources=RESOURCES)["id"]
        else:
            self._client.submit_many({"command": command, "resources": RESOURCES} for _ in numbers)

    def prepare_functions(self) -> None:
        """Start a worker, and wait until it takes calls."""
        assert self._up is not None
        os.environ |= {"DULY_URL": self._up.url, "DULY_KEY": self._up.key}
        self._worker = subprocess.Popen(
            [
                *(
                    str(Path(sys.executable).with_name("duly")),
                    "worker",
                    "benchmarks.peers.duly_app:app",
                ),
                *("--processes", str(PROCESSES), "--data", str(self.context.folder / "worker")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._worker.stdout is not None
        for line in self._worker.stdout:
            if line.startswith("ready:"):
                return
        raise CheckFailed("the worker ended before it was ready")

    def call(self, numbers: range, pipe: str = "") -> None:
        """Submit all calls in one request, as an application does."""
        from benchmarks.peers.duly_app import run

        arguments = [OPEN, pipe] if pipe else []
        if len(numbers) == 1:
            self._single = run.submit(numbers.start, arguments).id
        else:
            run.submit_many([(number, arguments) for number in numbers])

    def wait(self, numbers: range) -> None:
        """Poll until no task waits or runs."""
        assert self._client is not None
        if len(numbers) == 1:
            self._client.wait(self._single, timeout=TIMEOUT_SECONDS)
            return
        began = time.monotonic()
        remaining = len(numbers)
        while remaining:
            elapsed = time.monotonic() - began
            if elapsed > TIMEOUT_SECONDS:
                raise CheckFailed(
                    f"{remaining} of {len(numbers)} tasks had not ended in {TIMEOUT_SECONDS:.0f} s"
                )
            time.sleep(next_interval(elapsed, len(numbers) - remaining, remaining))
            counts = self._client.status()["tasks"]
            remaining = counts["waiting"] + counts["running"]

    def check(self, total: int) -> None:
        """Check that every task is done at its first attempt."""
        assert self._client is not None
        ends = [(task["status"], task["attempt"]) for task in self._client.iter_tasks()]
        if ends != [("done", 1)] * total:
            odd = [end for end in ends if end != ("done", 1)]
            raise CheckFailed(
                f"{len(ends)} of {total} tasks ended, some of them not done at attempt 1: {odd[:5]}"
            )

    def stop(self) -> None:
        """Stop the worker and `duly up`, and remove its folder."""
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait(STOP_TIMEOUT_SECONDS)
        if self._client is not None:
            self._client.close()
        if self._up is not None:
            self._up.__exit__(None, None, None)
