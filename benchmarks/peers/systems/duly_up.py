"""Duly itself, as `duly up` on one machine, with its own PostgreSQL."""

import time
from typing import TYPE_CHECKING

from benchmarks.peers.system import About, Broker, Facts, Place, System, Wrong
from benchmarks.polling import next_look

if TYPE_CHECKING:
    from scripts.throwaway import Throwaway

    import duly
    from duly.client.shapes.task_shapes import ResourceFields

SMALL: "ResourceFields" = {"cpu": 0.02, "memory_mb": 16, "disk_mb": 1}
PATIENCE = 90.0


class DulyUp(System):
    """`duly up` in a temporary folder, driven by the Python client."""

    about = About(
        name="duly",
        title="Duly",
        is_peer=False,
        brokers=(Broker.OWN,),
        settings=(
            "`duly up` with no settings, isolation `process`, tasks of 0.02 CPU: 100 at a time",
            "submitted in one batch with `submit_many`",
        ),
        facts=Facts(
            worker_killed="run again once the node's lease is over: 15 s after its last "
            "heartbeat, or at once when its agent is back",
            isolation="a process group and a workspace for each task, as a user of its own "
            "when Duly is run by root",
            caps="time, memory and length of the log for each task, kept by a supervisor that is a "
            "process of its own",
            logs="each task's output, by attempt, to be read and followed over HTTP",
        ),
    )

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._up: Throwaway | None = None
        self._client: duly.Client | None = None
        self._single = ""

    def prepare(self) -> None:
        """Start it as a user would."""
        from scripts.throwaway import Throwaway

        import duly

        self._up = Throwaway({}).__enter__()
        self._client = duly.Client(self._up.url, self._up.key)

    def submit(self, numbers: range, command: list[str]) -> None:
        """Send one request."""
        assert self._client is not None
        if len(numbers) == 1:
            self._single = self._client.submit(command=command, resources=SMALL)["id"]
        else:
            self._client.submit_many({"command": command, "resources": SMALL} for _ in numbers)

    def wait(self, numbers: range) -> None:
        """Ask until nothing waits and nothing runs."""
        assert self._client is not None
        if len(numbers) == 1:
            self._client.wait(self._single, timeout=PATIENCE)
            return
        began = time.monotonic()
        left = len(numbers)
        while left:
            passed = time.monotonic() - began
            if passed > PATIENCE:
                raise Wrong(f"{left} of {len(numbers)} tasks had not ended in {PATIENCE:.0f} s")
            time.sleep(next_look(passed, len(numbers) - left, left))
            counts = self._client.status()["tasks"]
            left = counts["waiting"] + counts["running"]

    def check(self, total: int) -> None:
        """Look at every task: done, at the first attempt."""
        assert self._client is not None
        ends = [(task["status"], task["attempt"]) for task in self._client.iter_tasks()]
        if ends != [("done", 1)] * total:
            odd = [end for end in ends if end != ("done", 1)]
            raise Wrong(f"{len(ends)} of {total} tasks ended; otherwise than once: {odd[:5]}")

    def stop(self) -> None:
        """Stop it, and remove its folder."""
        if self._client is not None:
            self._client.close()
        if self._up is not None:
            self._up.__exit__(None, None, None)
