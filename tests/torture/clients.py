"""The load generator of a run: clients for tasks, schedules and graphs, in a process of its own.

It runs in the client's own network, knows every server, and writes each call into the history
before and after. What it is to do is in a file that only its user can read, because a key is in
it; SIGTERM ends it after the calls that are under way.
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

PATIENCE = Patience(total=timedelta(seconds=15))
MOVES = {"submit": 62, "batch": 4, "repeat": 8, "reuse": 1, "cancel": 6, "get": 13, "wait": 6}
MOVES |= {"pause": 4}
SOON = ("cancel", "pause")
"""What had better be done to a task that is not over."""
BATCH = (5, 40)
REMEMBERED = 200
"""How many of its latest submissions a client comes back to."""
RECENT = 20
"""How many of them a new one may wait for: what has ended long ago is nothing to wait for."""
CATCH_UP = 2.0
"""Seconds of silence that a client makes up for; more would be a flood after each fault."""
LONGEST_WAIT = 5.0
HISTORY = "history.jsonl"


@dataclass(frozen=True)
class Orders:
    """What the runner tells this process."""

    urls: str
    key: str
    seed: int
    folder: Path
    clients: int = 8
    rate: float = 28.0
    """Calls per second, all clients together."""
    longest: float = 20.0
    """Seconds that a task takes at most."""
    backlog: int = 600
    """Waiting tasks from which on nobody submits, so that a run ends soon after its last fault."""

    def write(self, file: Path) -> None:
        file.touch(mode=0o600)
        file.write_text(json.dumps({**asdict(self), "folder": str(self.folder)}))

    @classmethod
    def read(cls, file: Path) -> Self:
        fields = json.loads(file.read_text())
        return cls(**{**fields, "folder": Path(fields["folder"])})


@dataclass
class Submission:
    """A submission that was made once, and what is known of it."""

    key: str
    fields: TaskFields
    task: str | None = None
    """Its id, once a server told it."""


class Traffic:
    """Tells the clients to go on, to hold back, or to stop."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self.enough = threading.Event()
        self.room = threading.Event()
        self.room.set()

    def watch(self) -> None:
        """Look once a second whether too much waits."""
        with Client(self._orders.urls, self._orders.key, patience=PATIENCE) as client:
            while not self.enough.wait(1.0):
                try:
                    waiting = client.status()["tasks"]["waiting"]
                except DulyError:
                    continue  # the submitters meet the same trouble, and write it down
                if waiting > self._orders.backlog:
                    self.room.clear()
                else:
                    self.room.set()


class Caller(threading.Thread):
    """One client: makes a move, writes it down, waits for its next turn."""

    def __init__(self, number: int, orders: Orders, traffic: Traffic) -> None:
        super().__init__(name=f"client-{number}")
        self._dice = Random(f"{orders.seed}/{number}")
        self._client = Client(_rotated(orders.urls, number), orders.key, patience=PATIENCE)
        self._interval = orders.clients / orders.rate
        self._traffic = traffic
        self._recorder = Recorder(orders.folder / HISTORY, self.name)
        self._halts = PausedTasks(self._client, self._recorder, self._dice)
        self._longest = orders.longest
        self._ledger = Ledger(orders.folder)
        self._made: list[Submission] = []
        self._count = 0

    def run(self) -> None:
        due = time.monotonic() + self._dice.random() * self._interval
        while not self._traffic.enough.wait(max(due - time.monotonic(), 0.0)):
            if not self._halts.resume_one():
                self._move()
            due = max(due, time.monotonic() - CATCH_UP) + self._interval
        self._halts.leave()
        self._client.close()
        self._recorder.close()

    def _move(self) -> None:
        move = self._dice.choices(list(MOVES), weights=list(MOVES.values()))[0]
        if move in ("submit", "batch") and not self._traffic.room.is_set():
            move = "get"
        if move == "submit" or (move != "batch" and not self._made):
            recent = [one.task for one in self._made[-RECENT:] if one.task is not None]
            self._submit(Submission(self._next_key(), self._task(recent)))
        elif move == "batch":
            self._batch()
        else:
            among = self._made[-2:] if move in SOON else self._made
            self._come_back(move, self._dice.choice(among))

    def _come_back(self, move: str, earlier: Submission) -> None:
        if move == "reuse":
            other: TaskFields = {**earlier.fields, "name": "another body under the same key"}
            self._submit(Submission(earlier.key, other), op="repeat")
        elif move == "repeat" or earlier.task is None:
            self._submit(earlier, op="repeat")
        else:
            self._ask(move, earlier.task)

    def _submit(self, what: Submission, op: Literal["submit", "repeat"] = "submit") -> None:
        answer = self._recorder.call(
            op,
            lambda: self._client.submit(**{**what.fields, "idempotency_key": what.key}),
            args=what.fields,
            key=what.key,
        )
        if answer is not None:
            what.task = answer["id"]
        if op == "submit":
            self._made.append(what)
            del self._made[:-REMEMBERED]

    def _batch(self) -> None:
        key = self._next_key()
        tasks = [
            self._task([f"t{one}" for one in range(number)], ref=f"t{number}")
            for number in range(self._dice.randint(*BATCH))
        ]
        self._recorder.call(
            "batch",
            lambda: self._client.submit_many(tasks, idempotency_key=key),
            args={"tasks": tasks},
            key=key,
        )

    def _ask(self, move: str, task: str) -> None:
        args = {"task": task}
        match move:
            case "cancel":
                self._recorder.call("cancel", lambda: self._client.cancel_task(task), args=args)
            case "pause":
                self._halts.pause(task)
            case "get":
                self._recorder.call("get", lambda: self._client.get_task(task), args=args)
            case _:
                wait = functools.partial(self._client.wait, task, timeout=LONGEST_WAIT)
                self._recorder.call("wait", wait, args=args)

    def _task(self, among: Sequence[str], ref: str | None = None) -> TaskFields:
        """Draw a task, and what of `among` it waits for."""
        fields = task_mix.draw(self._dice, self._longest)
        milli = round(fields["resources"]["cpu"] * 1000)
        fields["source"] = self._ledger.script(fields["source"], cpu_milli=milli)
        if upstreams := task_mix.upstreams(self._dice, among):
            fields["depends_on"] = upstreams
        if ref is not None:
            fields["ref"] = ref
        return fields

    def _next_key(self) -> str:
        self._count += 1
        return f"{self.name}-{self._count}"


def _rotated(urls: str, number: int) -> str:
    """Let every client begin with another server."""
    listed = urls.split(",")
    first = number % len(listed)
    return ",".join(listed[first:] + listed[:first])


def _schedule_client(orders: Orders, traffic: Traffic) -> ScheduleClient:
    return ScheduleClient(
        Client(orders.urls, orders.key, patience=PATIENCE),
        Recorder(orders.folder / HISTORY, "timetable"),
        Random(f"{orders.seed}/timetable"),
        Ledger(orders.folder),
        traffic.enough,
    )


def _graph_client(orders: Orders, traffic: Traffic) -> GraphClient:
    return GraphClient(
        Client(orders.urls, orders.key, patience=PATIENCE),
        Recorder(orders.folder / HISTORY, "weaver"),
        Random(f"{orders.seed}/weaver"),
        Ledger(orders.folder),
        traffic,
    )


def main(file: Path) -> int:
    """Do as told until there is enough; anything but an answer of Duly's is a mistake of ours."""
    orders = Orders.read(file)
    traffic = Traffic(orders)
    signal.signal(signal.SIGTERM, lambda *_: traffic.enough.set())
    broken: list[threading.ExceptHookArgs] = []

    def note(args: threading.ExceptHookArgs) -> None:
        broken.append(args)
        threading.__excepthook__(args)

    threading.excepthook = note
    threads = [threading.Thread(target=traffic.watch)]
    threads += [Caller(number, orders, traffic) for number in range(orders.clients)]
    threads += [_schedule_client(orders, traffic), _graph_client(orders, traffic)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
