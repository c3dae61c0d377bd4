"""Short scenarios, each of which exposes one mutant.

The same run without the mutant must be found faultless, so a scenario waits for nothing that
only the mistake brings about.
"""

import asyncio
import itertools
import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from duly import wire
from duly.agent import identity
from duly.agent.gateway import Gateway
from duly.client.shapes.schedule_shapes import Occurrence, ScheduleFields
from duly.client.shapes.task_shapes import Task
from duly.client.sync import Client
from duly.model.task import Outcome
from tests.faults.lab import Lab, until
from tests.faults.proxy import Proxy
from tests.torture import database_dump, history
from tests.torture.evidence import Violation
from tests.torture.history import Op, Recorder
from tests.torture.invariants.recurrence import MARK

HOLDS_ON = "[ $DULY_ATTEMPT -gt 1 ] || sleep 60"
FINAL = ("done", "failed", "cancelled")


class Stage:
    """A lab with a client whose calls are written down."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.client = lab.client(lab.urls)
        self._path = folder / "history"
        self.recorder = Recorder(self._path, "client")
        self._numbers = itertools.count()

    def close(self) -> None:
        self.recorder.close()
        self.lab.close()

    def judge(self) -> list[Violation]:
        return self.lab.judge(history.read([self._path]))

    def submit(self, work: str, client: Client | None = None, **fields: Any) -> str:
        """Submit a task that does `work`, and return its id."""
        cpu = int(1000 * fields.get("resources", {}).get("cpu", 0))
        fields["source"] = self.lab.ledger.script(work, cpu_milli=cpu)
        fields.setdefault("idempotency_key", f"task-{next(self._numbers)}")
        task = self.recorder.call(
            "submit",
            lambda: (client or self.client).submit(**fields),
            args=fields,
            key=fields["idempotency_key"],
        )
        assert task is not None
        return task["id"]

    def schedule(self, work: str, *, every: str, overlap: str, lasts: float) -> str:
        """Make a schedule of tasks that do `work`, and return its id."""
        fields: ScheduleFields = {
            "every": every,
            "overlap": overlap,
            "end_at": (datetime.now(UTC) + timedelta(seconds=lasts)).isoformat(),
            "task": {
                "name": f"{MARK}{next(self._numbers)}",
                "source": self.lab.ledger.script(work, cpu_milli=100),
                "resources": {"cpu": 0.1},
            },
        }
        made = self.recorder.call(
            "create schedule",
            lambda: {"schedule": self.client.create_schedule(**fields)["id"]},
            args=fields,
        )
        assert made is not None
        return made["schedule"]

    def pause(self, schedule: str) -> None:
        self._tell("pause schedule", schedule, self.client.pause_schedule)

    def resume(self, schedule: str) -> None:
        self._tell("resume schedule", schedule, self.client.resume_schedule)

    def _tell(self, op: Op, schedule: str, do: Callable[[str], object]) -> None:
        said = {"schedule": schedule}
        self.recorder.call(op, lambda: do(schedule) and said, args=said)

    def cancel(self, task: str) -> None:
        self.recorder.call("cancel", lambda: self.client.cancel_task(task), args={"task": task})

    def wait(self, task: str) -> None:
        self.recorder.call("wait", lambda: self.client.wait(task, timeout=30), args={"task": task})

    def begun(self, task: str, attempt: int = 1) -> None:
        """Wait until an attempt has begun."""
        until(
            lambda: [one for one in self.lab.ledger.starts(task) if one.attempt == attempt],
            f"attempt {attempt} to begin",
        )

    def held(self, task: str) -> wire.AttemptRef:
        """Return what names the attempt that runs, as its node knows it and the task does not."""
        live = {row.id: row for row in database_dump.read(self.lab.dsn).live}[int(task)]
        assert live.token is not None
        return wire.AttemptRef(live.id, live.attempt, live.token)

    def report(self, node: str, ref: wire.AttemptRef, outcome: Outcome) -> None:
        """Report an attempt as a node that was thought dead would."""

        async def send() -> None:
            known = identity.load(self.lab.folder / node)
            assert known is not None
            async with Gateway([self.lab.url]) as gateway:
                gateway.key = known.key
                late = wire.AttemptReport(ref=ref, outcome=outcome)
                message = wire.ReportRequest(incarnation=1, reports=[late])
                await gateway.call("report", message, wire.ReportResponse, timeout=10)

        asyncio.run(send())


def late_report(stage: Stage) -> None:
    """A node is lost, its task runs elsewhere, and then the node reports a success."""
    stage.lab.start_server()
    agent = stage.lab.start_agent("node-a")
    task = stage.submit(f"{HOLDS_ON}; beats 20")
    stage.begun(task)
    first = stage.held(task)
    agent.kill()
    stage.lab.start_agent("node-b")
    stage.begun(task, 2)
    stage.report("node-a", first, Outcome.SUCCEEDED)
    stage.wait(task)


def killed_after_the_answer(stage: Stage) -> None:
    """A server is killed as soon as it has acknowledged a task."""
    server = stage.lab.start_server()
    stage.submit("true")
    server.kill()


def changed_while_leased(stage: Stage) -> None:
    """A client puts a task off at the moment at which it is leased."""
    stage.lab.start_server()
    stage.lab.start_agent()
    task = stage.submit("true")
    later = datetime.now(UTC) + timedelta(hours=1)
    _try(lambda: stage.client.update_task(task, run_at=later))
    # By the time that another is done, whatever was to become of this one has come about.
    stage.wait(stage.submit("true"))


def reported_while_rescued(stage: Stage) -> None:
    """A node hands a task back at the moment at which the task is taken from it."""
    server = stage.lab.start_server()
    agent = stage.lab.start_agent("node-a")
    task = stage.submit(f"{HOLDS_ON}; beats 60")
    stage.begun(task)
    first = stage.held(task)
    agent.kill()
    stage.lab.start_agent("node-b")
    until(lambda: server.said("is lost"), "the node to be lost")
    stage.report("node-a", first, Outcome.EXPIRED)
    stage.wait(task)


def stopped_leader(stage: Stage) -> None:
    """The leader is stopped until another leads, goes on, and gets work."""
    lab = stage.lab
    servers = {"server-0": lab.start_server(0), "server-1": lab.start_server(1)}
    lab.start_agent(url=lab.urls)
    stage.wait(stage.submit("true"))
    leader = until(lambda: _leader(lab, lab.url), "a leader")
    other = lab.urls.split(",")[leader == "server-0"]
    servers[leader].send(signal.SIGSTOP)
    until(lambda: _leader(lab, other) not in ("", leader), "another leader")
    servers[leader].send(signal.SIGCONT)
    for _ in range(10):
        for url in lab.urls.split(","):
            stage.wait(stage.submit("true", lab.client(url)))


def long_task(stage: Stage) -> None:
    """A task runs for longer than the lease of its node, which is renewed all the time."""
    stage.lab.start_server()
    stage.lab.start_agent()
    task = stage.submit("beats 80")
    until(lambda: _is_over(stage, task) or _shown(stage, task)["losses"], "the task to end")


def stubborn_task(stage: Stage) -> None:
    """A task that fills its node does not heed its cancellation, and another waits for it."""
    stage.lab.start_server()
    stage.lab.start_agent()
    first = stage.submit("trap '' TERM; beats 40", resources={"cpu": 4})
    stage.begun(first)
    second = stage.submit("beats 3", resources={"cpu": 4})
    stage.cancel(first)
    stage.wait(second)
    stage.wait(first)


def same_key_twice(stage: Stage) -> None:
    """One task is submitted at two servers at once."""
    lab = stage.lab
    lab.start_server(0)
    lab.start_server(1)
    clients = [lab.client(url) for url in lab.urls.split(",")]
    threads = [
        threading.Thread(target=stage.submit, args=("true", one), kwargs={"idempotency_key": "k"})
        for one in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def cancelled_task(stage: Stage) -> None:
    """A task is cancelled while it runs."""
    stage.lab.start_server()
    stage.lab.start_agent()
    task = stage.submit("beats 15")
    stage.begun(task)
    stage.cancel(task)
    stage.wait(task)


def failed_then_lost(stage: Stage) -> None:
    """A task fails, is lost with its node, and then succeeds."""
    stage.lab.start_server()
    agent = stage.lab.start_agent()
    task = stage.submit(
        "[ $DULY_ATTEMPT != 1 ] || exit 1; [ $DULY_ATTEMPT != 2 ] || sleep 60", max_attempts=3
    )
    stage.begun(task, 2)
    agent.kill()
    stage.lab.start_agent()
    stage.wait(task)


def cut_off_node(stage: Stage) -> None:
    """A node is cut off while a task runs there, until the task runs elsewhere."""
    stage.lab.start_server()
    proxy = Proxy(stage.lab.port)
    stage.lab.start_agent("node-a", url=proxy.url)
    task = stage.submit("[ $DULY_ATTEMPT -gt 1 ] || beats 150; beats 10")
    stage.begun(task)
    stage.lab.start_agent("node-b")
    proxy.part()
    stage.wait(task)
    proxy.heal()
    until(lambda: stage.lab.node("node-a") == "ready", "the first node to join again")
    proxy.close()


def endless_task(stage: Stage) -> None:
    """A task does not end by itself, and its cap is short."""
    stage.lab.start_server()
    stage.lab.start_agent()
    stage.wait(stage.submit("beats 600", execution_cap="1s", max_attempts=1))


def paused_schedule(stage: Stage) -> None:
    """A schedule whose tasks take longer than its interval fires, rests, and fires again."""
    stage.lab.start_server()
    stage.lab.start_agent()
    schedule = stage.schedule("beats 13", every="1s", overlap="skip", lasts=9)
    until(lambda: len(_fire_times(stage, schedule)) > 2, "the schedule to fire")
    stage.pause(schedule)
    seen = len(_fire_times(stage, schedule))
    later = stage.schedule("true", every="1s", overlap="allow", lasts=3)
    until(lambda: stage.client.get_schedule(later)["next_run_at"] is None, "another to be over")
    stage.resume(schedule)
    until(lambda: len(_fire_times(stage, schedule)) > seen, "what was passed over")
    until(lambda: stage.client.get_schedule(schedule)["next_run_at"] is None, "its end")


SCENARIOS: dict[str, tuple[Callable[[Stage], None], set[int]]] = {
    "drop_the_attempt": (late_report, {5}),
    "answer_before_commit": (killed_after_the_answer, {1}),
    "lease_without_lock": (changed_while_leased, {4}),
    "rescue_by_snapshot": (reported_while_rescued, {6}),
    "skip_the_term": (stopped_leader, {17}),
    "local_clock": (long_task, {6}),
    "release_too_early": (stubborn_task, {11}),
    "select_then_insert": (same_key_twice, {13}),
    "cancel_only_what_waits": (cancelled_task, {14}),
    "forget_failures": (failed_then_lost, {4, 8}),
    "trust_for_ever": (cut_off_node, {7}),
    "ignore_the_cap": (endless_task, {15}),
    "fire_without_claim": (paused_schedule, {9}),
    "forget_the_missed": (paused_schedule, {9}),
    "fire_while_paused": (paused_schedule, {9}),
}
"""For each mutant where it does harm, and which invariants must notice."""


def _leader(lab: Lab, url: str) -> str:
    found = lab.leader(url)
    return "" if found is None else found[0]


def _fire_times(stage: Stage, schedule: str) -> list[Occurrence]:
    return stage.client.list_occurrences(schedule)["items"]


def _shown(stage: Stage, task: str) -> Task:
    return stage.client.get_task(task)


def _is_over(stage: Stage, task: str) -> bool:
    return _shown(stage, task)["status"] in FINAL


def _try(do: Callable[[], object]) -> None:
    try:
        do()
    except Exception as error:
        assert getattr(error, "code", "") == "conflict", error
