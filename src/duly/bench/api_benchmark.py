"""Measures an installation through its API, as any client could.

Every task has the same name, made for this run, so that it can be found, and none
is left behind: what only had to be stored is due in a far future, and cancelled.
Every part is bounded in count and in time.

A tenant may have limits, of which these tasks take their share. So the parts come in the order
of what they need, and one that is refused is left out and told.
"""

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from duly.bench.figure import Figure, percentile
from duly.client.shapes import Task, TaskFields
from duly.client.sync import Client
from duly.clock import monotonic
from duly.errors import DulyError, Invalid, LimitExceeded

LATER = "2099-01-01T00:00:00Z"
CLIENTS = 16
LOOK = 1.0
"""Seconds between two looks at whether it should end early."""
LEAVE = 10.0
"""Seconds that what runs gets to end, once it has been cancelled."""
LIVE = ["scheduled", "blocked", "waiting", "paused", "running"]
STRETCHES = (
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
    """How much is done at most; whatever `seconds` do not suffice for is left out."""

    batches: int = 3
    batch: int = 1000
    singles: int = 400
    runs: int = 300
    latencies: int = 40
    seconds: float = 60.0


class Unfinished(Exception):
    """A task did not end as it should: done, at its first attempt."""


class Interrupted(Exception):
    """Somebody wanted it to end early; what was submitted has been taken back."""


class Outside:
    """One run against one installation."""

    def __init__(self, client: Client, bounds: Bounds) -> None:
        self.stop = threading.Event()
        """Set by whoever wants it to end early. It ends between two calls: one that is broken
        off could still store tasks after they should have been taken back."""
        self.name = f"duly-bench-{secrets.token_hex(4)}"
        self._client = client
        self._bounds = bounds
        self._until = monotonic() + bounds.seconds

    def measure(
        self, told: Callable[[Figure], None], left_out: Callable[[str, DulyError], None]
    ) -> None:
        """Measure everything, tell each figure at once, and leave nothing running.

        What the tenant's limits do not allow is told as left out, with the refusal.
        """
        parts = {
            "one task at a time": self._latencies,
            RUNS: self._runs,
            SINGLES: self._singles,
            f"batch submit, {self._bounds.batch:,} in a request": self._batches,
        }
        with self._tidied():
            for name, part in parts.items():
                try:
                    for figure in part(name):
                        told(figure)
                except (LimitExceeded, Invalid) as refusal:
                    left_out(name, refusal)
                if self.stop.is_set():
                    raise Interrupted

    @contextlib.contextmanager
    def _tidied(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._client.cancel_tasks(name=self.name, status=LIVE)
            until = monotonic() + LEAVE
            for task in self._client.iter_tasks(name=self.name, status=LIVE):
                with contextlib.suppress(TimeoutError):
                    self._client.wait(task["id"], timeout=max(until - monotonic(), 0.0))

    def _batches(self, name: str) -> Iterator[Figure]:
        size = self._bounds.batch
        batch = [self._later() for _ in range(size)]
        began, count = monotonic(), 0
        while count < self._bounds.batches and (count == 0 or self._has_time):
            self._client.submit_many(batch)
            count += 1
        rate = count * size / (monotonic() - began)
        yield Figure(part="submit", name=name, value=rate, unit="/s")

    def _singles(self, name: str) -> Iterator[Figure]:
        left = iter(range(self._bounds.singles))
        turn, failed = threading.Lock(), list[DulyError]()
        done = [0] * CLIENTS

        def some(number: int) -> None:
            endpoint = self._client.endpoint
            try:
                with Client(",".join(endpoint.urls), endpoint.key, ca_file=endpoint.ca_file) as own:
                    while self._has_time and not failed:
                        with turn:
                            if next(left, None) is None:
                                return
                        own.submit(**self._later())
                        done[number] += 1
            except DulyError as error:
                failed.append(error)

        threads = [threading.Thread(target=some, args=(number,)) for number in range(CLIENTS)]
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
        ids = self._client.submit_many(self._due() for _ in range(self._bounds.runs))
        ended = [self._ended(task) for task in reversed(ids)]
        rate = len(ended) / (monotonic() - began)
        yield Figure(part="run", name=name, value=rate, unit="/s")

    def _latencies(self, _: str) -> Iterator[Figure]:
        taken: dict[str, list[float]] = {"answered": [], "started": [], "heard": []}
        while len(taken["heard"]) < self._bounds.latencies and self._has_time:
            began = monotonic()
            try:
                task = self._client.submit(**self._due())
            except LimitExceeded:
                if not taken["heard"]:
                    raise
                break  # Fewer will do.
            taken["answered"].append((monotonic() - began) * 1000)
            ended = self._ended(task["id"])
            taken["heard"].append((monotonic() - began) * 1000)
            taken["started"].append(_waited(ended))
        for name, values in zip(STRETCHES, taken.values(), strict=True):
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

    def _later(self) -> TaskFields:
        return {"name": self.name, "command": ["/bin/true"], "run_at": LATER}

    def _due(self) -> TaskFields:
        return {
            "name": self.name,
            "command": ["/bin/true"],
            "resources": {"cpu": 0.1, "memory_mb": 16, "disk_mb": 1},
            "execution_cap": "1m",
        }

    def _ended(self, task: str) -> Task:
        """Wait for the end of a task; raises Unfinished unless it was done at the first try."""
        until, found = max(self._until, monotonic() + LOOK), None
        while found is None:
            if self.stop.is_set():
                raise Interrupted
            if monotonic() > until:
                raise Unfinished(f"Task {task} has not ended in the time that was given.")
            with contextlib.suppress(TimeoutError):
                found = self._client.wait(task, timeout=LOOK)
        if (found["status"], found["attempt"]) != ("done", 1):
            raise Unfinished(
                f"Task {task} is {found['status']} after {found['attempt']} attempts; "
                f"`duly why {task}` says more."
            )
        return found


def _waited(task: Task) -> float:
    """Return the milliseconds from when a task was stored to when it was started."""
    if task["started_at"] is None:
        raise Unfinished(f"Task {task['id']} ended and was never started.")
    span = datetime.fromisoformat(task["started_at"]) - datetime.fromisoformat(task["submitted_at"])
    return max(span.total_seconds() * 1000, 0.0)
