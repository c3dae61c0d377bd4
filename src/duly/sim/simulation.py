"""The event loop: tasks arrive, rounds start them, attempts end, nodes fail and come back.

All events of one instant are handled before the round that follows, and rounds are at least
`round_interval` apart, as in a server, whose rounds take some time: so one round decides on many
tasks when there are many.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from random import Random
from typing import Protocol

from duly.model.task import Outcome, Tally
from duly.policy import retry
from duly.policy.placement import Ask
from duly.policy.retry import DeadLetter, Retry, RetryPolicy
from duly.sim.baselines import BASELINES, GlobalOrder
from duly.sim.cluster import Cluster, Node
from duly.sim.recorder import Recorder
from duly.sim.run_times import RunTimes
from duly.sim.scheduler import FairTurns, Round, Scheduler, TurnPolicy
from duly.sim.subqueues import SubqueueKey, Waiting
from duly.sim.task import EPOCH, SimTask, instant, second
from duly.sim.workloads.workload import Workload
from duly.sim.world import World

POLICIES = ("duly", *BASELINES)
BATCHES_PER_PROGRESS = 500
DEFAULT_MAX_ATTEMPTS = 3
MAX_FRUITLESS_WINDOWS = 2
"""Windows of which nothing can start, because room is held, before an instant is over."""
Progress = Callable[[float], None]
"""Called now and then with the simulated time, in seconds."""


class Observer(Protocol):
    """Looks at a simulation after everything that happens; tests check invariants with it."""

    def after_events(self, simulation: "Simulation") -> None:
        """Look after the events of an instant, before its round."""

    def after_round(self, simulation: "Simulation", decided: Round) -> None:
        """Look after the tasks of a window have started."""

    def after_rounds(self, simulation: "Simulation") -> None:
        """Look after the last window of an instant."""


class Simulation:
    """One run of a workload under a policy."""

    def __init__(
        self, workload: Workload, policy: str, seed: int, observer: Observer | None = None
    ) -> None:
        self.workload = workload
        self.seed = seed
        self.world = World()
        self.cluster = Cluster(workload.nodes, workload.shapes)
        scheduling = workload.scheduling
        self.waiting = Waiting(workload.shapes, _sort_key(policy), scheduling.postpone_slack)
        self.policy = self._policy(policy)
        self.recorder = Recorder(workload)
        self._run_times = RunTimes()
        self.unfinished = 0
        """Tasks that have arrived and not ended."""
        self._scheduler = Scheduler(workload, self.cluster, self.waiting, self.policy)
        self._observer = observer
        self._dice = Random(f"{seed}/retries")  # noqa: S311
        self._urgent_slack = scheduling.urgent_slack.total_seconds()
        self._postpone_slack = scheduling.postpone_slack.total_seconds()
        self._off_peak = {
            id_ for id_, shape in workload.shapes.items() if shape.queue == "off_peak"
        }

    def _policy(self, name: str) -> TurnPolicy:
        if name in BASELINES:
            return GlobalOrder(BASELINES[name], self.workload)
        return FairTurns(self.workload, self.cluster, self.waiting)

    def run(self, progress: Progress | None = None) -> Recorder:
        """Run until every task has ended."""
        with _without_garbage_collection():
            self._plan_failures()
            self._run(self.workload.arrivals.tasks(self.seed), progress or (lambda now: None))
        return self.recorder

    def _run(self, arrivals: Iterator[SimTask], progress: Progress) -> None:
        world, interval = self.world, self.workload.round_interval
        arrival = next(arrivals, None)
        batches = 0
        while arrival is not None or self.unfinished:
            first = min(world.next_at, inf if arrival is None else arrival.arrived)
            now = max(first, world.now + interval)
            world.advance(now)
            while arrival is not None and arrival.arrived <= now:
                self.unfinished += 1
                self._run_times.tell(arrival)
                self._wait(arrival)
                arrival = next(arrivals, None)
            self._schedule(now)
            batches += 1
            if batches % BATCHES_PER_PROGRESS == 0:
                progress(now)

    def _wait(self, task: SimTask) -> None:
        now = self.world.now
        self.waiting.push(task, now)
        if task.shape_id in self.waiting.postponable:
            # Nothing else may happen when it must wait no longer; a millisecond later than that.
            is_off_peak = task.shape_id in self._off_peak
            slack = self._urgent_slack if is_off_peak else self._postpone_slack
            due = (task.start_by - EPOCH).total_seconds() - slack + 0.001
            if due > now:
                self.world.at(due, _nothing, None)

    def _schedule(self, now: float) -> None:
        """Run rounds until nothing more can start."""
        observer = self._observer
        if observer is not None:
            observer.after_events(self)
        held: list[tuple[SimTask, Ask]] = []
        skipped: set[SubqueueKey] = set()
        fruitless = 0
        while self.waiting.counts:
            decided = self._scheduler.round(now, held, skipped)
            if decided is None:
                break
            for task, node_id in decided.starts:
                self._start(task, self.cluster.nodes[node_id], now)
            if observer is not None:
                observer.after_round(self, decided)
            unplaced = {(task.tenant_id, task.shape_id) for task, _ in decided.unplaced}
            fruitless = 0 if decided.starts else fruitless + 1
            if not self._has_more(decided) or fruitless == MAX_FRUITLESS_WINDOWS:
                break
            skipped |= unplaced
            held = [entry for entry in decided.unplaced if entry[1].may_hold]
        if observer is not None:
            observer.after_rounds(self)

    def _has_more(self, decided: Round) -> bool:
        """Return True if another window of this instant may start more tasks."""
        if decided.is_truncated:
            return True
        # What was chosen and not placed has kept postponable tasks out of the window.
        return bool(decided.unplaced) and self.waiting.may_be_postponed

    def _start(self, task: SimTask, node: Node, now: float) -> None:
        self.waiting.remove(task, now)
        self.cluster.start(task, node, now)
        task.attempt += 1
        if task.started < 0:
            task.started = now
        cap = task.execution_cap.total_seconds()
        run = task.run_time if task.run_time <= cap else cap
        self.world.at(now + run, self._end, (task, task.attempt, node, now))

    def _end(self, subject: tuple[SimTask, int, Node, float]) -> None:
        task, attempt, node, started = subject
        if task.attempt != attempt or node.has_crashed or task.id not in node.running:
            return  # It was lost with its node.
        now = self.world.now
        self.cluster.end(task, node)
        self.recorder.record_attempt(task, started, now)
        if self.workload.arrivals.has_names:
            self._run_times.observe(task, now - started)
        if task.run_time <= task.execution_cap.total_seconds():
            self.unfinished -= 1
            self.recorder.record_end(task, now)
        else:
            task.failures += 1
            self._retry(task, Outcome.CAPPED, node)

    def _retry(self, task: SimTask, outcome: Outcome, node: Node) -> None:
        now, retries = self.world.now, self.workload.retries
        task.avoid_node_id = node.id
        attempts = self.workload.max_attempts
        max_attempts = attempts[task.class_id] if attempts else DEFAULT_MAX_ATTEMPTS
        decision = retry.decide(
            RetryPolicy(
                max_attempts=max_attempts,
                base_delay=retries.base_delay,
                max_delay=retries.max_delay,
                max_losses=retries.max_losses,
            ),
            outcome,
            Tally(task.failures, task.losses),
            is_cancelled=False,
            now=instant(now),
            jitter=self._dice.random(),
        )
        match decision:
            case Retry(at, keeps_place):
                again = max(now, (at - EPOCH).total_seconds())
                if not keeps_place:
                    task.start_by = second(int(again + task.delay_tolerance.total_seconds()))
                self.world.at(again, self._wait, task)
            case DeadLetter():
                self.unfinished -= 1
                self.recorder.record_end(task, now, has_failed=True)

    def _plan_failures(self) -> None:
        for node in self.cluster.nodes.values():
            group = self.workload.nodes[node.group]
            if group.mean_time_between_failures:
                dice = Random(f"{self.seed}/node/{node.id}")  # noqa: S311
                self._plan_crash(node, dice)

    def _plan_crash(self, node: Node, dice: Random) -> None:
        between = self.workload.nodes[node.group].mean_time_between_failures or inf
        at = self.world.now + dice.expovariate(1 / between)
        self.world.at(at, self._crash, (node, dice))

    def _crash(self, subject: tuple[Node, Random]) -> None:
        """Kill a node; servers notice when its lease expires, or when it joins again."""
        node, _ = subject
        node.has_crashed = True
        now, repair = self.world.now, self.workload.nodes[node.group].repair_time
        noticed = min(repair, self.workload.leases.ttl.total_seconds())
        self.world.at(now + noticed, self._lose, (node, now))
        self.world.at(now + repair, self._restore, subject)

    def _lose(self, subject: tuple[Node, float]) -> None:
        node, crashed = subject
        for attempt in self.cluster.lose(node):
            task = attempt.task
            if attempt.started < crashed:
                self.recorder.record_attempt(task, attempt.started, crashed)
            self.recorder.attempts_lost += 1
            task.losses += 1
            self._retry(task, Outcome.LOST, node)

    def _restore(self, subject: tuple[Node, Random]) -> None:
        self.cluster.restore(subject[0])
        self._plan_crash(*subject)


def _sort_key(policy: str) -> Callable[[SimTask], tuple[object, ...]]:
    return BASELINES.get(policy, FairTurns.key)


def _nothing(subject: None) -> None:
    """Do nothing: a round follows any event."""


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector: tasks form no cycles, and it would look at all of them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
