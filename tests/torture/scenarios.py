"""Short scenarios, each of which exposes one mutant.

The same scenario without the mutant must have no violations, so it does not wait for anything that
only the defect causes.
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
from tests.torture.invariants.recurrence import NAME_PREFIX

SLEEP_AT_FIRST_ATTEMPT = "[ $DULY_ATTEMPT -gt 1 ] || sleep 60"
FINAL = ("done", "failed", "cancelled")


class Scenario:
    """A lab with a client whose calls are recorded."""

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
        """Submit a task that does `work`; return its id."""
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

    def schedule(self, work: str, *, every: str, overlap: str, duration: float) -> str:
        """Create a schedule of tasks that do `work`; return its id."""
        fields: ScheduleFields = {
            "every": every,
            "overlap": overlap,
            "end_at": (datetime.now(UTC) + timedelta(seconds=duration)).isoformat(),
            "task": {
                "name": f"{NAME_PREFIX}{next(self._numbers)}",
                "source": self.lab.ledger.script(work, cpu_milli=100),
                "resources": {"cpu": 0.1},
            },
        }
        created = self.recorder.call(
            "create schedule",
            lambda: {"schedule": self.client.create_schedule(**fields)["id"]},
            args=fields,
        )
        assert created is not None
        return created["schedule"]

    def pause(self, schedule: str) -> None:
        self._call("pause schedule", schedule, self.client.pause_schedule)

    def resume(self, schedule: str) -> None:
        self._call("resume schedule", schedule, self.client.resume_schedule)

    def _call(self, op: Op, schedule: str, operation: Callable[[str], object]) -> None:
        arguments = {"schedule": schedule}
        self.recorder.call(op, lambda: operation(schedule) and arguments, args=arguments)

    def cancel(self, task: str) -> None:
        self.recorder.call("cancel", lambda: self.client.cancel_task(task), args={"task": task})

    def wait(self, task: str) -> None:
        self.recorder.call("wait", lambda: self.client.wait(task, timeout=30), args={"task": task})

    def await_start(self, task: str, attempt: int = 1) -> None:
        """Wait until an attempt has started."""
        until(
            lambda: [entry for entry in self.lab.ledger.starts(task) if entry.attempt == attempt],
            f"attempt {attempt} to start",
        )

    def running_attempt(self, task: str) -> wire.AttemptRef:
        """Return the reference of the running attempt."""
        live = {row.id: row for row in database_dump.read(self.lab.dsn).live}[int(task)]
        assert live.token is not None
        return wire.AttemptRef(live.id, live.attempt, live.token)

    def report(self, node: str, ref: wire.AttemptRef, outcome: Outcome) -> None:
        """Send the report of a node that was considered lost."""

        async def send() -> None:
            node_identity = identity.load(self.lab.folder / node)
            assert node_identity is not None
            async with Gateway([self.lab.url]) as gateway:
                gateway.key = node_identity.key
                late = wire.AttemptReport(ref=ref, outcome=outcome)
                message = wire.ReportRequest(incarnation=1, reports=[late])
                await gateway.call("report", message, wire.ReportResponse, timeout=10)

        asyncio.run(send())


def late_report(scenario: Scenario) -> None:
    """A node is lost, its task runs elsewhere, and then the node reports a success."""
    scenario.lab.start_server()
    agent = scenario.lab.start_agent("node-a")
    task = scenario.submit(f"{SLEEP_AT_FIRST_ATTEMPT}; beats 20")
    scenario.await_start(task)
    first = scenario.running_attempt(task)
    agent.kill()
    scenario.lab.start_agent("node-b")
    scenario.await_start(task, 2)
    scenario.report("node-a", first, Outcome.SUCCEEDED)
    scenario.wait(task)


def killed_after_the_answer(scenario: Scenario) -> None:
    """A server is killed as soon as it has acknowledged a task."""
    server = scenario.lab.start_server()
    scenario.submit("true")
    server.kill()


def changed_while_leased(scenario: Scenario) -> None:
    """A client defers a task at the moment at which it is leased."""
    scenario.lab.start_server()
    scenario.lab.start_agent()
    task = scenario.submit("true")
    later = datetime.now(UTC) + timedelta(hours=1)
    _allow_conflict(lambda: scenario.client.update_task(task, run_at=later))
    # Once a later task is done, the first one has been processed, too.
    scenario.wait(scenario.submit("true"))


def reported_while_rescued(scenario: Scenario) -> None:
    """A node returns a task at the moment at which its lease is expired."""
    server = scenario.lab.start_server()
    agent = scenario.lab.start_agent("node-a")
    task = scenario.submit(f"{SLEEP_AT_FIRST_ATTEMPT}; beats 60")
    scenario.await_start(task)
    first = scenario.running_attempt(task)
    agent.kill()
    scenario.lab.start_agent("node-b")
    until(lambda: server.has_logged("is lost"), "the node to be lost")
    scenario.report("node-a", first, Outcome.EXPIRED)
    scenario.wait(task)


def stopped_leader(scenario: Scenario) -> None:
    """The leader is stopped until another leads, then continues, and gets tasks."""
    lab = scenario.lab
    servers = {"server-0": lab.start_server(0), "server-1": lab.start_server(1)}
    lab.start_agent(url=lab.urls)
    scenario.wait(scenario.submit("true"))
    leader = until(lambda: _leader(lab, lab.url), "a leader")
    other = lab.urls.split(",")[leader == "server-0"]
    servers[leader].send(signal.SIGSTOP)
    until(lambda: _leader(lab, other) not in ("", leader), "another leader")
    servers[leader].send(signal.SIGCONT)
    for _ in range(10):
        for url in lab.urls.split(","):
            scenario.wait(scenario.submit("true", lab.client(url)))


def long_task(scenario: Scenario) -> None:
    """A task runs for longer than the lease of its node, which is renewed all the time."""
    scenario.lab.start_server()
    scenario.lab.start_agent()
    task = scenario.submit("beats 80")
    until(
        lambda: _has_ended(scenario, task) or _get_task(scenario, task)["losses"], "the task to end"
    )


def stubborn_task(scenario: Scenario) -> None:
    """A task that fills its node ignores its cancellation, while another waits for room."""
    scenario.lab.start_server()
    scenario.lab.start_agent()
    first = scenario.submit("trap '' TERM; beats 40", resources={"cpu": 4})
    scenario.await_start(first)
    second = scenario.submit("beats 3", resources={"cpu": 4})
    scenario.cancel(first)
    scenario.wait(second)
    scenario.wait(first)


def same_key_twice(scenario: Scenario) -> None:
    """One task is submitted to two servers concurrently."""
    lab = scenario.lab
    lab.start_server(0)
    lab.start_server(1)
    clients = [lab.client(url) for url in lab.urls.split(",")]
    threads = [
        threading.Thread(
            target=scenario.submit, args=("true", client), kwargs={"idempotency_key": "k"}
        )
        for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


def cancelled_task(scenario: Scenario) -> None:
    """A task is cancelled while it runs."""
    scenario.lab.start_server()
    scenario.lab.start_agent()
    task = scenario.submit("beats 15")
    scenario.await_start(task)
    scenario.cancel(task)
    scenario.wait(task)


def failed_then_lost(scenario: Scenario) -> None:
    """A task fails, is lost with its node, and then succeeds."""
    scenario.lab.start_server()
    agent = scenario.lab.start_agent()
    task = scenario.submit(
        "[ $DULY_ATTEMPT != 1 ] || exit 1; [ $DULY_ATTEMPT != 2 ] || sleep 60", max_attempts=3
    )
    scenario.await_start(task, 2)
    agent.kill()
    scenario.lab.start_agent()
    scenario.wait(task)


def cut_off_node(scenario: Scenario) -> None:
    """A node is partitioned while it runs a task, until the task runs elsewhere."""
    scenario.lab.start_server()
    proxy = Proxy(scenario.lab.port)
    scenario.lab.start_agent("node-a", url=proxy.url)
    task = scenario.submit("[ $DULY_ATTEMPT -gt 1 ] || beats 150; beats 10")
    scenario.await_start(task)
    scenario.lab.start_agent("node-b")
    proxy.partition()
    scenario.wait(task)
    proxy.heal()
    until(lambda: scenario.lab.node("node-a") == "ready", "the first node to join again")
    proxy.close()


def endless_task(scenario: Scenario) -> None:
    """A task runs until its cap."""
    scenario.lab.start_server()
    scenario.lab.start_agent()
    scenario.wait(scenario.submit("beats 600", execution_cap="1s", max_attempts=1))


def paused_schedule(scenario: Scenario) -> None:
    """A schedule whose tasks take longer than its interval fires, is paused, and is resumed."""
    scenario.lab.start_server()
    scenario.lab.start_agent()
    schedule = scenario.schedule("beats 13", every="1s", overlap="skip", duration=9)
    until(lambda: len(_fire_times(scenario, schedule)) > 2, "the schedule to fire")
    scenario.pause(schedule)
    fired_before = len(_fire_times(scenario, schedule))
    later = scenario.schedule("true", every="1s", overlap="allow", duration=3)
    until(lambda: scenario.client.get_schedule(later)["next_run_at"] is None, "another to be over")
    scenario.resume(schedule)
    until(lambda: len(_fire_times(scenario, schedule)) > fired_before, "the missed fire times")
    until(lambda: scenario.client.get_schedule(schedule)["next_run_at"] is None, "its end")


SCENARIOS: dict[str, tuple[Callable[[Scenario], None], set[int]]] = {
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
"""For each mutant, a scenario that exposes it and the invariants that must detect it."""


def _leader(lab: Lab, url: str) -> str:
    leader = lab.leader(url)
    return "" if leader is None else leader[0]


def _fire_times(scenario: Scenario, schedule: str) -> list[Occurrence]:
    return scenario.client.list_occurrences(schedule)["items"]


def _get_task(scenario: Scenario, task: str) -> Task:
    return scenario.client.get_task(task)


def _has_ended(scenario: Scenario, task: str) -> bool:
    return _get_task(scenario, task)["status"] in FINAL


def _allow_conflict(operation: Callable[[], object]) -> None:
    try:
        operation()
    except Exception as error:
        assert getattr(error, "code", "") == "conflict", error
