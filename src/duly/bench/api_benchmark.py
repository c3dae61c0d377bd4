"""Measures an installation through its API, as any client could.

All tasks of a run share a generated name, and none is left behind: tasks that only measure
submission are due in the far future and cancelled afterwards. Every part is bounded in count and
in time.

The tasks count against the tenant's limits. So the cheapest parts run first, and a part that the
limits refuse is skipped and reported.
"""

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from duly.bench.figure import Figure, percentile
from duly.client.shapes.task_shapes import Task, TaskFields
from duly.client.sync import Client
from duly.clock import monotonic
from duly.errors import DulyError, Invalid, LimitExceeded

FAR_FUTURE = "2099-01-01T00:00:00Z"
CLIENTS = 16
STOP_CHECK_SECONDS = 1.0
"""Seconds between two checks of the stop flag while waiting for a task."""
CANCEL_TIMEOUT_SECONDS = 10.0
"""Seconds that running tasks get to end after they were cancelled."""
LIVE = ["scheduled", "blocked", "waiting", "paused", "running"]
LATENCY_NAMES = (
    "one at a time, submit sent → answered",
    "one at a time, stored → started, by the servers' clock",
    "one at a time, submit sent → end heard of",
)
RUNS = "/bin/true, from submit to done"
SINGLES = f"single submits, {CLIENTS} threads of the Python client"
UNSEEN = (
    "what raw COPY and raw commits reach on the same PostgreSQL",
    "what posix_spawn reaches on the nodes",
    "CPU, memory and WAL by part, and the idle cost",
    "the start by a node's own clock: it is told as the servers reckon it",
)
"""What cannot be measured from outside."""


@dataclass(frozen=True)
class Bounds:
    """Upper bounds of a run; parts that do not fit into `seconds` are skipped."""

    batches: int = 3
    batch: int = 1000
    singles: int = 400
    runs: int = 300
    latencies: int = 40
    seconds: float = 60.0


class Unfinished(Exception):
    """A task did not end as it should: done, at its first attempt."""


class Interrupted(Exception):
    """The run was stopped early; its tasks have been cancelled."""


class ApiBenchmark:
    """One run against one installation."""

    def __init__(self, client: Client, bounds: Bounds) -> None:
        self.stop = threading.Event()
        """Set it to end the run early. The run ends between two calls: an interrupted call could
        still store tasks after the others were cancelled."""
        self.name = f"duly-bench-{secrets.token_hex(4)}"
        self._client = client
        self._bounds = bounds
        self._until = monotonic() + bounds.seconds

    def measure(
        self, on_figure: Callable[[Figure], None], on_skipped: Callable[[str, DulyError], None]
    ) -> None:
        """Measure everything, report each figure at once, and leave nothing running.

        Parts that the tenant's limits do not allow are reported to `on_skipped` with the error.
        """
        parts = {
            "one task at a time": self._latencies,
            RUNS: self._runs,
            SINGLES: self._singles,
            f"batch submit, {self._bounds.batch:,} in a request": self._batches,
        }
        with self._cleanup():
            for name, part in parts.items():
                try:
                    for figure in part(name):
                        on_figure(figure)
                except (LimitExceeded, Invalid) as refusal:
                    on_skipped(name, refusal)
                if self.stop.is_set():
                    raise Interrupted

    @contextlib.contextmanager
    def _cleanup(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._client.cancel_tasks(name=self.name, status=LIVE)
            until = monotonic() + CANCEL_TIMEOUT_SECONDS
            for task in self._client.iter_tasks(name=self.name, status=LIVE):
                with contextlib.suppress(TimeoutError):
                    self._client.wait(task["id"], timeout=max(until - monotonic(), 0.0))

    def _batches(self, name: str) -> Iterator[Figure]:
        size = self._bounds.batch
        batch = [self._deferred_task() for _ in range(size)]
        began, count = monotonic(), 0
        while count < self._bounds.batches and (count == 0 or self._has_time):
            self._client.submit_many(batch)
            count += 1
        rate = count * size / (monotonic() - began)
        yield Figure(part="submit", name=name, value=rate, unit="/s")

    def _singles(self, name: str) -> Iterator[Figure]:
        remaining = iter(range(self._bounds.singles))
        lock, failed = threading.Lock(), list[DulyError]()
        done = [0] * CLIENTS

        def submit_singles(number: int) -> None:
            endpoint = self._client.endpoint
            try:
                with Client(
                    ",".join(endpoint.urls), endpoint.key, ca_file=endpoint.ca_file
                ) as client:
                    while self._has_time and not failed:
                        with lock:
                            if next(remaining, None) is None:
                                return
                        client.submit(**self._deferred_task())
                        done[number] += 1
            except DulyError as error:
                failed.append(error)

        threads = [
            threading.Thread(target=submit_singles, args=(number,)) for number in range(CLIENTS)
        ]
        began = monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        if sum(done):
            rate = sum(done) / (monotonic() - began)
            yield Figure(part="submit", name=name, value=rate, unit="/s")

    def _runs(self, name: str) -> Iterator[Figure]:
        if not self._has_time:
            return
        began = monotonic()
        ids = self._client.submit_many(self._ready_task() for _ in range(self._bounds.runs))
        ended = [self._wait_for_end(task) for task in reversed(ids)]
        rate = len(ended) / (monotonic() - began)
        yield Figure(part="run", name=name, value=rate, unit="/s")

    def _latencies(self, _: str) -> Iterator[Figure]:
        latencies: dict[str, list[float]] = {"answered": [], "started": [], "heard": []}
        while len(latencies["heard"]) < self._bounds.latencies and self._has_time:
            began = monotonic()
            try:
                task = self._client.submit(**self._ready_task())
            except LimitExceeded:
                if not latencies["heard"]:
                    raise
                break  # Fewer samples suffice.
            latencies["answered"].append((monotonic() - began) * 1000)
            ended = self._wait_for_end(task["id"])
            latencies["heard"].append((monotonic() - began) * 1000)
            latencies["started"].append(_start_delay_ms(ended))
        for name, values in zip(LATENCY_NAMES, latencies.values(), strict=True):
            for share in (0.5, 0.99) if values else ():
                yield Figure(
                    part="latency",
                    name=f"{name}, p{share * 100:.0f}",
                    value=percentile(values, share),
                    unit="ms",
                    note=f"of {len(values)}",
                )

    @property
    def _has_time(self) -> bool:
        return monotonic() < self._until and not self.stop.is_set()

    def _deferred_task(self) -> TaskFields:
        return {"name": self.name, "command": ["/bin/true"], "run_at": FAR_FUTURE}

    def _ready_task(self) -> TaskFields:
        return {
            "name": self.name,
            "command": ["/bin/true"],
            "resources": {"cpu": 0.1, "memory_mb": 16, "disk_mb": 1},
            "execution_cap": "1m",
        }

    def _wait_for_end(self, task: str) -> Task:
        """Wait for the end of a task; raises Unfinished unless it was done at its first attempt."""
        until, ended = max(self._until, monotonic() + STOP_CHECK_SECONDS), None
        while ended is None:
            if self.stop.is_set():
                raise Interrupted
            if monotonic() > until:
                raise Unfinished(f"Task {task} has not ended within the time limit.")
            with contextlib.suppress(TimeoutError):
                ended = self._client.wait(task, timeout=STOP_CHECK_SECONDS)
        if (ended["status"], ended["attempt"]) != ("done", 1):
            raise Unfinished(
                f"Task {task} is {ended['status']} after {ended['attempt']} attempts; see 'duly "
                f"why {task}'."
            )
        return ended


def _start_delay_ms(task: Task) -> float:
    """Return the milliseconds from a task's submission to its start."""
    if task["started_at"] is None:
        raise Unfinished(f"Task {task['id']} ended without being started.")
    span = datetime.fromisoformat(task["started_at"]) - datetime.fromisoformat(task["submitted_at"])
    return max(span.total_seconds() * 1000, 0.0)
