"""The load generator of a run: clients for tasks, schedules and graphs, in a process of its own.

It runs on the clients' host, knows every server, and records each call in the history before and
after. Its options are in a file with mode 600, because they include a key; SIGTERM ends it after
the calls in progress.
"""

import functools
import json
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Literal, Self

from duly.client.retry import Patience
from duly.client.shapes.task_shapes import TaskFields
from duly.client.sync import Client
from duly.errors import DulyError
from tests.torture import task_mix
from tests.torture.graph_client import GraphClient
from tests.torture.history import Recorder
from tests.torture.ledger import Ledger
from tests.torture.paused_tasks import PausedTasks
from tests.torture.schedule_client import ScheduleClient

CLIENT_PATIENCE = Patience(total=timedelta(seconds=15))
OPERATION_WEIGHTS = {
    "submit": 62,
    "batch": 4,
    "repeat": 8,
    "reuse": 1,
    "cancel": 6,
    "get": 13,
    "wait": 6,
}
OPERATION_WEIGHTS |= {"pause": 4}
OPERATIONS_ON_LIVE_TASKS = ("cancel", "pause")
"""Operations that are drawn for one of the latest tasks, which probably has not ended."""
BATCH_SIZES = (5, 40)
MAX_REMEMBERED_SUBMISSIONS = 200
"""Earlier submissions that a client may repeat, read, pause or cancel."""
MAX_UPSTREAM_CANDIDATES = 20
"""Earlier submissions that a new one may depend on; older tasks have ended long ago."""
MAX_CATCH_UP_SECONDS = 2.0
"""How far a client catches up after an outage; more would cause a flood after each fault."""
WAIT_TIMEOUT_SECONDS = 5.0
HISTORY = "history.jsonl"


@dataclass(frozen=True)
class LoadOptions:
    """The options of this process, written by the runner."""

    urls: str
    key: str
    seed: int
    folder: Path
    clients: int = 8
    rate: float = 28.0
    """Calls per second, all clients together."""
    max_task_seconds: float = 20.0
    """The longest duration of a task."""
    backlog: int = 600
    """The number of waiting tasks above which clients stop to submit, so that a run ends soon."""

    def write(self, file: Path) -> None:
        file.touch(mode=0o600)
        file.write_text(json.dumps({**asdict(self), "folder": str(self.folder)}))

    @classmethod
    def read(cls, file: Path) -> Self:
        fields = json.loads(file.read_text())
        return cls(**{**fields, "folder": Path(fields["folder"])})


@dataclass
class Submission:
    """A submission that may be repeated, and its task."""

    key: str
    fields: TaskFields
    task: str | None = None
    """The task id, once it was acknowledged."""


class FlowControl:
    """Lets clients submit while the backlog is small, and stops them at the end."""

    def __init__(self, options: LoadOptions) -> None:
        self._options = options
        self.stopped = threading.Event()
        self.may_submit = threading.Event()
        self.may_submit.set()

    def watch(self) -> None:
        """Check the backlog once a second."""
        with Client(self._options.urls, self._options.key, patience=CLIENT_PATIENCE) as client:
            while not self.stopped.wait(1.0):
                try:
                    waiting = client.status()["tasks"]["waiting"]
                except DulyError:
                    continue  # the other clients meet and record the same error
                if waiting > self._options.backlog:
                    self.may_submit.clear()
                else:
                    self.may_submit.set()


class TaskClient(threading.Thread):
    """One client, which makes calls at a fixed rate and records them."""

    def __init__(self, number: int, options: LoadOptions, flow: FlowControl) -> None:
        super().__init__(name=f"client-{number}")
        self._rng = Random(f"{options.seed}/{number}")
        self._client = Client(_rotated(options.urls, number), options.key, patience=CLIENT_PATIENCE)
        self._interval = options.clients / options.rate
        self._flow = flow
        self._recorder = Recorder(options.folder / HISTORY, self.name)
        self._paused_tasks = PausedTasks(self._client, self._recorder, self._rng)
        self._max_task_seconds = options.max_task_seconds
        self._ledger = Ledger(options.folder)
        self._submissions: list[Submission] = []
        self._count = 0

    def run(self) -> None:
        due = time.monotonic() + self._rng.random() * self._interval
        while not self._flow.stopped.wait(max(due - time.monotonic(), 0.0)):
            if not self._paused_tasks.resume_one():
                self._operate()
            due = max(due, time.monotonic() - MAX_CATCH_UP_SECONDS) + self._interval
        self._paused_tasks.resume_all()
        self._client.close()
        self._recorder.close()

    def _operate(self) -> None:
        operation = self._rng.choices(
            list(OPERATION_WEIGHTS), weights=list(OPERATION_WEIGHTS.values())
        )[0]
        if operation in ("submit", "batch") and not self._flow.may_submit.is_set():
            operation = "get"
        if operation == "submit" or (operation != "batch" and not self._submissions):
            recent = [
                made.task
                for made in self._submissions[-MAX_UPSTREAM_CANDIDATES:]
                if made.task is not None
            ]
            self._submit(Submission(self._next_key(), self._task(recent)))
        elif operation == "batch":
            self._batch()
        else:
            candidates = (
                self._submissions[-2:]
                if operation in OPERATIONS_ON_LIVE_TASKS
                else self._submissions
            )
            self._revisit(operation, self._rng.choice(candidates))

    def _revisit(self, operation: str, earlier: Submission) -> None:
        if operation == "reuse":
            other: TaskFields = {**earlier.fields, "name": "another body under the same key"}
            self._submit(Submission(earlier.key, other), op="repeat")
        elif operation == "repeat" or earlier.task is None:
            self._submit(earlier, op="repeat")
        else:
            self._call_on(operation, earlier.task)

    def _submit(self, submission: Submission, op: Literal["submit", "repeat"] = "submit") -> None:
        task = self._recorder.call(
            op,
            lambda: self._client.submit(**{**submission.fields, "idempotency_key": submission.key}),
            args=submission.fields,
            key=submission.key,
        )
        if task is not None:
            submission.task = task["id"]
        if op == "submit":
            self._submissions.append(submission)
            del self._submissions[:-MAX_REMEMBERED_SUBMISSIONS]

    def _batch(self) -> None:
        key = self._next_key()
        tasks = [
            self._task([f"t{earlier}" for earlier in range(number)], ref=f"t{number}")
            for number in range(self._rng.randint(*BATCH_SIZES))
        ]
        self._recorder.call(
            "batch",
            lambda: self._client.submit_many(tasks, idempotency_key=key),
            args={"tasks": tasks},
            key=key,
        )

    def _call_on(self, operation: str, task: str) -> None:
        args = {"task": task}
        match operation:
            case "cancel":
                self._recorder.call("cancel", lambda: self._client.cancel_task(task), args=args)
            case "pause":
                self._paused_tasks.pause(task)
            case "get":
                self._recorder.call("get", lambda: self._client.get_task(task), args=args)
            case _:
                wait = functools.partial(self._client.wait, task, timeout=WAIT_TIMEOUT_SECONDS)
                self._recorder.call("wait", wait, args=args)

    def _task(self, candidates: Sequence[str], ref: str | None = None) -> TaskFields:
        """Draw a task that depends on some of `candidates`."""
        fields = task_mix.draw(self._rng, self._max_task_seconds)
        milli = round(fields["resources"]["cpu"] * 1000)
        fields["source"] = self._ledger.script(fields["source"], cpu_milli=milli)
        if upstreams := task_mix.upstreams(self._rng, candidates):
            fields["depends_on"] = upstreams
        if ref is not None:
            fields["ref"] = ref
        return fields

    def _next_key(self) -> str:
        self._count += 1
        return f"{self.name}-{self._count}"


def _rotated(urls: str, number: int) -> str:
    """Return the URLs in an order that depends on the number of the client."""
    all_urls = urls.split(",")
    first = number % len(all_urls)
    return ",".join(all_urls[first:] + all_urls[:first])


def _schedule_client(options: LoadOptions, flow: FlowControl) -> ScheduleClient:
    return ScheduleClient(
        Client(options.urls, options.key, patience=CLIENT_PATIENCE),
        Recorder(options.folder / HISTORY, "schedules"),
        Random(f"{options.seed}/schedules"),
        Ledger(options.folder),
        flow.stopped,
    )


def _graph_client(options: LoadOptions, flow: FlowControl) -> GraphClient:
    return GraphClient(
        Client(options.urls, options.key, patience=CLIENT_PATIENCE),
        Recorder(options.folder / HISTORY, "graphs"),
        Random(f"{options.seed}/graphs"),
        Ledger(options.folder),
        flow,
    )


def main(file: Path) -> int:
    """Run all clients until SIGTERM; return 1 if one raised an unexpected exception."""
    options = LoadOptions.read(file)
    flow = FlowControl(options)
    signal.signal(signal.SIGTERM, lambda *_: flow.stopped.set())
    failures: list[threading.ExceptHookArgs] = []

    def record_failure(args: threading.ExceptHookArgs) -> None:
        failures.append(args)
        threading.__excepthook__(args)

    threading.excepthook = record_failure
    threads = [threading.Thread(target=flow.watch)]
    threads += [TaskClient(number, options, flow) for number in range(options.clients)]
    threads += [_schedule_client(options, flow), _graph_client(options, flow)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
