"""The protocol of an agent, driven without a network, a clock or a process."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from duly.agent.events import (
    Abandon,
    Answered,
    Assigned,
    Effect,
    Exited,
    Fenced,
    Fetch,
    Fetched,
    Forget,
    Freeze,
    Kill,
    Leave,
    Rejoin,
    Renewed,
    Report,
    Start,
    StopOrdered,
    StopRequested,
    Terminate,
    Thaw,
    Ticked,
    Trust,
)
from duly.agent.outcome import (
    CANCELLED_BEFORE,
    END_LOST,
    INTENDED,
    NEVER_BEGUN,
    UNBEGUN,
    Conclusion,
    Exit,
)
from duly.agent.state import FROZEN_LIMIT, MARGIN, REMEMBERED, Agent
from duly.model.task import Outcome, Reason
from duly.wire import AttemptRef, Stop

A = AttemptRef(1, 1, 10)
B = AttemptRef(2, 1, 11)
TTL = 15.0
DONE = Exit(code=0)
KILLED = Exit(code=-9, stopped=True)
SUCCESS = Conclusion(Outcome.SUCCEEDED, None, 0)


def agent(*, freezer: bool = True) -> Agent:
    """Return an agent that joined at time 0."""
    joined = Agent(freezer=freezer)
    assert joined.begin(0.0, TTL) == [Trust(TTL - MARGIN)]
    return joined


def test_an_assignment_is_started_once_however_often_it_comes():
    node = agent()
    assert node.handle(Assigned(A), 1.0) == [Start(A)]
    assert node.handle(Assigned(A), 1.1) == []
    assert node.held == [A]


def test_an_attempt_is_held_until_its_report_is_answered():
    node = agent()
    node.handle(Assigned(A), 1.0)
    assert node.handle(Exited(A, DONE), 2.0) == [Report(A, SUCCESS)]
    assert node.held == [A]
    assert node.handle(Answered(A), 3.0) == [Forget(A)]
    assert node.held == []


def test_a_late_assignment_of_an_ended_attempt_starts_nothing():
    node = agent()
    node.handle(Assigned(A), 1.0)
    node.handle(Exited(A, DONE), 2.0)
    node.handle(Answered(A), 3.0)
    assert node.handle(Assigned(A), 4.0) == [Report(A, END_LOST)]
    assert node.handle(Assigned(A), 5.0) == []
    assert node.handle(Answered(A), 6.0) == [Forget(A)]
    assert node.held == []


def test_an_order_to_end_what_has_ended_is_answered_too():
    node = agent()
    node.handle(Assigned(A), 1.0)
    node.handle(Exited(A, DONE), 2.0)
    node.handle(Answered(A), 3.0)
    assert node.handle(StopOrdered(Stop(ref=A, why="capped")), 4.0) == [Report(A, END_LOST)]
    node.handle(Answered(A), 5.0)
    cancel = StopOrdered(Stop(ref=A, why="cancelled"))
    assert node.handle(cancel, 6.0) == [Report(A, CANCELLED_BEFORE)]
    node.handle(Answered(A), 7.0)
    assert node.handle(StopOrdered(Stop(ref=A, why="lost")), 8.0) == []


def test_what_is_remembered_of_the_past_is_bounded():
    node = agent()
    for number in range(REMEMBERED + 10):
        ref = AttemptRef(number, 1, number)
        node.handle(Assigned(ref), 1.0)
        node.handle(Exited(ref, DONE), 1.0)
        node.handle(Answered(ref), 1.0)
    assert len(node.past) == REMEMBERED


def test_attempts_freeze_when_trust_runs_out_and_thaw_when_it_returns():
    node = agent()
    node.handle(Assigned(A), 1.0)
    assert node.handle(Ticked(), 12.9) == []
    assert node.handle(Ticked(), 13.0) == [Freeze(A)]
    assert node.handle(Ticked(), 14.0) == []
    assert node.handle(Renewed(20.0, TTL), 21.0) == [Trust(33.0), Thaw(A)]


def test_what_a_renewal_does_not_list_is_killed_and_not_thawed():
    node = agent()
    node.handle(Assigned(A), 1.0)
    node.handle(Assigned(B), 1.0)
    node.handle(Ticked(), 13.0)
    renewed = Renewed(20.0, TTL, (Stop(ref=A, why="lost"),))
    assert node.handle(renewed, 21.0) == [Kill(A), Trust(33.0), Thaw(B)]
    assert node.handle(Exited(A, KILLED), 22.0) == [Forget(A)]


def test_trust_counts_from_when_the_heartbeat_was_sent():
    node = agent()
    node.handle(Assigned(A), 1.0)
    late = Renewed(2.0, TTL)
    assert node.handle(late, 16.0) == [Freeze(A)]


def test_a_frozen_attempt_is_killed_after_five_minutes_and_reported_lost():
    node = agent()
    node.handle(Assigned(A), 1.0)
    node.handle(Ticked(), 13.0)
    assert node.handle(Ticked(), 13.0 + FROZEN_LIMIT - 1) == []
    assert node.handle(Ticked(), 13.0 + FROZEN_LIMIT) == [Kill(A)]
    lost = Conclusion(Outcome.LOST, INTENDED[Outcome.LOST], 137)
    assert node.handle(Exited(A, KILLED), 400.0) == [Report(A, lost)]


def test_without_a_freezer_attempts_are_killed_when_trust_runs_out():
    node = agent(freezer=False)
    node.handle(Assigned(A), 1.0)
    assert node.handle(Ticked(), 13.0) == [Kill(A)]
    assert node.handle(Ticked(), 14.0) == []


def test_nothing_is_taken_on_a_lease_that_is_not_trusted():
    node = agent()
    assert node.handle(Assigned(A), 13.0) == []
    assert node.held == []
    node.handle(Renewed(14.0, TTL), 14.1)
    assert node.handle(Assigned(A), 14.2) == [Start(A)]


@pytest.mark.parametrize(
    ("why", "effect", "outcome"),
    [
        ("cancelled", Terminate(A), Outcome.CANCELLED),
        ("capped", Kill(A), Outcome.CAPPED),
    ],
)
def test_a_stop_is_obeyed_once_and_reported(why, effect, outcome):
    node = agent()
    node.handle(Assigned(A), 1.0)
    assert node.handle(StopOrdered(Stop(ref=A, why=why)), 2.0) == [effect]
    assert node.handle(StopOrdered(Stop(ref=A, why=why)), 2.1) == []
    [report] = node.handle(Exited(A, KILLED), 3.0)
    assert isinstance(report, Report)
    assert report.conclusion.outcome is outcome


def test_something_unknown_that_is_lost_is_ignored():
    assert agent().handle(StopOrdered(Stop(ref=A, why="lost")), 0) == []


@pytest.mark.parametrize(
    ("why", "conclusion"), [("cancelled", CANCELLED_BEFORE), ("capped", NEVER_BEGUN)]
)
def test_an_attempt_that_never_arrived_is_answered_for_and_never_started(why, conclusion):
    node = agent()
    assert node.handle(StopOrdered(Stop(ref=A, why=why)), 0) == [Report(A, conclusion)]
    assert node.handle(StopOrdered(Stop(ref=A, why=why)), 0) == []
    assert node.handle(Assigned(A), 0) == []
    assert node.held == [A]
    assert node.handle(Answered(A), 0) == [Forget(A)]
    assert node.held == []


def test_a_lost_attempt_that_has_ended_is_forgotten_at_once():
    node = agent()
    node.handle(Assigned(A), 1.0)
    node.handle(Exited(A, DONE), 2.0)
    assert node.handle(StopOrdered(Stop(ref=A, why="lost")), 3.0) == [Forget(A)]
    assert node.handle(Answered(A), 4.0) == []


def test_a_stopping_agent_hands_its_attempts_back_and_leaves():
    node = agent()
    node.handle(Assigned(A), 1.0)
    assert node.handle(StopRequested(), 2.0) == [Terminate(A)]
    expired = Conclusion(Outcome.EXPIRED, INTENDED[Outcome.EXPIRED])
    assert node.handle(Assigned(B), 2.1) == [Report(B, expired)]
    preempted = Conclusion(Outcome.PREEMPTED, INTENDED[Outcome.PREEMPTED], 137)
    assert node.handle(Exited(A, KILLED), 3.0) == [Report(A, preempted)]
    assert node.handle(Answered(A), 4.0) == [Forget(A)]
    assert node.handle(Answered(B), 4.0) == [Forget(B), Leave()]


def test_a_task_that_ends_before_it_could_be_stopped_has_ended_by_itself():
    node = agent()
    node.handle(Assigned(A), 1.0)
    node.handle(StopRequested(), 2.0)
    assert node.handle(Exited(A, DONE), 2.0) == [Report(A, SUCCESS)]


def test_an_idle_agent_leaves_at_once():
    assert agent().handle(StopRequested(), 1.0) == [Leave()]


def test_a_fenced_agent_kills_everything_before_it_joins_again():
    node = agent()
    node.handle(Assigned(A), 1.0)
    node.handle(Assigned(B), 1.0)
    node.handle(Exited(B, DONE), 2.0)
    assert node.handle(Fenced(), 3.0) == [Kill(A), Forget(B)]
    assert node.handle(Assigned(AttemptRef(3, 1, 12)), 3.5) == []
    assert node.handle(Exited(A, KILLED), 4.0) == [Forget(A), Rejoin()]
    assert node.begin(5.0, TTL) == [Trust(18.0)]
    assert node.handle(Assigned(AttemptRef(3, 1, 12)), 6.0) == [Start(AttemptRef(3, 1, 12))]


def test_a_fenced_agent_that_holds_nothing_joins_again_at_once():
    assert agent().handle(Fenced(), 1.0) == [Rejoin()]


def test_an_attempt_with_inputs_begins_once_it_has_them():
    node = agent()
    assert node.handle(Assigned(A, has_inputs=True), 1.0) == [Fetch(A)]
    assert node.handle(Assigned(A, has_inputs=True), 1.1) == []
    assert node.held == [A]
    assert node.handle(Fetched(A), 2.0) == [Start(A)]
    assert node.handle(Fetched(A), 2.1) == []
    assert node.handle(Exited(A, DONE), 3.0) == [Report(A, SUCCESS)]


REFUSED = Conclusion(Outcome.FAILED, Reason("inputs_too_large", "x"))


def test_an_attempt_whose_inputs_cannot_be_had_ends_for_it():
    node = agent()
    node.handle(Assigned(A, has_inputs=True), 1.0)
    assert node.handle(Fetched(A, REFUSED), 2.0) == [Abandon(A), Report(A, REFUSED)]
    assert node.handle(Answered(A), 3.0) == [Forget(A)]
    assert node.handle(Fetched(A), 4.0) == []


@pytest.mark.parametrize("freezer", [True, False])
def test_what_waits_for_its_inputs_is_neither_frozen_nor_begun_without_trust(freezer):
    node = agent(freezer=freezer)
    node.handle(Assigned(A, has_inputs=True), 1.0)
    assert node.handle(Ticked(), 20.0) == []
    assert node.handle(Fetched(A), 21.0) == []
    assert node.handle(Ticked(), 20.0 + FROZEN_LIMIT) == []
    sent_at = 30.0 + FROZEN_LIMIT
    renewed = Renewed(sent_at, TTL)
    assert node.handle(renewed, sent_at) == [Trust(sent_at + TTL - MARGIN), Start(A)]


@pytest.mark.parametrize("fetched", [False, True])
@pytest.mark.parametrize(
    ("event", "effects"),
    [
        (StopOrdered(Stop(ref=A, why="cancelled")), [Abandon(A), Report(A, CANCELLED_BEFORE)]),
        (StopOrdered(Stop(ref=A, why="capped")), [Abandon(A), Report(A, NEVER_BEGUN)]),
        (StopOrdered(Stop(ref=A, why="lost")), [Abandon(A), Forget(A)]),
        (Renewed(20.0, 1.0, (Stop(ref=A, why="lost"),)), [Abandon(A), Forget(A)]),
        (Fenced(), [Abandon(A), Forget(A), Rejoin()]),
        (StopRequested(), [Abandon(A), Report(A, UNBEGUN[Outcome.PREEMPTED])]),
    ],
)
def test_what_waits_for_its_inputs_is_given_up_like_what_never_came(event, effects, fetched):
    node = agent()
    node.handle(Assigned(A, has_inputs=True), 1.0)
    if fetched:
        node.handle(Fetched(A), 19.0)
    assert node.handle(event, 20.0)[: len(effects)] == effects
    assert node.handle(Fetched(A), 20.0) == []


REFS = [AttemptRef(task, attempt, 10 * task + attempt) for task in range(4) for attempt in (1, 2)]


class AgentMachine(RuleBasedStateMachine):
    """Every order of events that a network, a supervisor and a clock can produce."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.node = Agent(freezer=True)
        self.trust = float("-inf")
        self.running: dict[AttemptRef, str] = {}
        self.started: list[AttemptRef] = []
        self.fetching: set[AttemptRef] = set()
        self.fetched: set[AttemptRef] = set()
        self.reported: set[AttemptRef] = set()
        self.answered: set[AttemptRef] = set()
        self.discarded: set[AttemptRef] = set()
        self.joined = False

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Fetch(ref):
                    assert ref not in self.fetching | self.fetched, "fetched twice"
                    self.fetching.add(ref)
                case Abandon(ref):
                    assert ref in self.fetching | self.fetched and ref not in self.started
                    self.fetching.discard(ref)
                case Start(ref):
                    assert ref not in self.fetching, "started before it had its inputs"
                    assert ref not in self.started, "started twice"
                    assert not self.node.stopping and not self.node.fenced
                    assert self.now < self.trust, "started without trust"
                    self.started.append(ref)
                    self.running[ref] = "running"
                case Freeze(ref):
                    self.running[ref] = "frozen"
                case Thaw(ref):
                    assert self.now < self.trust, "thawed without trust"
                    assert self.running[ref] == "frozen"
                    self.running[ref] = "running"
                case Kill(ref):
                    self.running[ref] = "killed"
                case Terminate(ref):
                    assert ref in self.running
                case Trust(until):
                    assert until > self.now
                    self.trust = until
                case Report(ref, _):
                    assert ref not in self.running
                    done_with = self.answered | self.discarded
                    assert ref not in self.reported - done_with, "the sender repeats, not we"
                    self.reported.add(ref)
                    self.answered.discard(ref)
                    self.discarded.discard(ref)
                case Forget(ref):
                    assert ref not in self.running, "forgotten while it ran"
                case Rejoin():
                    assert not self.running and not self.node.held
                    self.joined = False
                case Leave():
                    assert not self.running and not self.node.held

    def handle(self, event) -> None:
        self.do(self.node.handle(event, self.now))

    @precondition(lambda self: not self.joined)
    @rule(delay=st.floats(0, 5), ttl=st.floats(1, 30))
    def join(self, delay, ttl):
        if self.node.fenced and self.node.held:
            return
        sent_at = self.now
        self.now += delay * 0.01
        self.do(self.node.begin(sent_at, ttl))
        self.joined = True

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds):
        self.now += seconds
        self.handle(Ticked())

    @precondition(lambda self: self.joined)
    @rule(ref=st.sampled_from(REFS))
    def assign(self, ref):
        self.handle(Assigned(ref, has_inputs=ref.task % 2 == 1))

    @rule(ref=st.sampled_from(REFS), refusal=st.sampled_from([None, None, REFUSED]))
    def fetch(self, ref, refusal):
        if ref in self.fetching:
            if refusal is None:
                self.fetching.discard(ref)
                self.fetched.add(ref)
            self.handle(Fetched(ref, refusal))

    @rule(ref=st.sampled_from(REFS), code=st.sampled_from([0, 1, -9, -15]), stopped=st.booleans())
    def leave_off(self, ref, code, stopped):
        if self.running.get(ref, "frozen") != "frozen":
            killed = self.running.pop(ref) == "killed"
            self.handle(Exited(ref, Exit(code=code, stopped=stopped or killed)))

    @precondition(lambda self: self.joined)
    @rule(
        late=st.floats(0, 20),
        ttl=st.floats(1, 30),
        lost=st.lists(st.sampled_from(REFS), max_size=3),
    )
    def renew(self, late, ttl, lost):
        sent_at = self.now
        self.now += late
        self.discarded |= set(lost) & set(self.node.held)
        stops = tuple(Stop(ref=ref, why="lost") for ref in lost)
        self.handle(Renewed(sent_at, ttl, stops))

    @precondition(lambda self: self.joined)
    @rule(ref=st.sampled_from(REFS), why=st.sampled_from(["cancelled", "capped", "lost"]))
    def order_stop(self, ref, why):
        if why == "lost" and ref in self.node.held:
            self.discarded.add(ref)
        self.handle(StopOrdered(Stop(ref=ref, why=why)))

    @rule(ref=st.sampled_from(REFS))
    def answer(self, ref):
        if ref in self.reported:
            self.answered.add(ref)
            self.handle(Answered(ref))

    @rule()
    def fence(self):
        self.discarded |= set(self.node.held)
        self.handle(Fenced())

    @rule()
    def stop(self):
        self.handle(StopRequested())

    @invariant()
    def nothing_runs_past_its_trust(self):
        self.handle(Ticked())
        if self.now >= self.trust or self.node.fenced:
            assert "running" not in self.running.values()

    @invariant()
    def what_ended_is_held_until_it_was_answered(self):
        due = self.reported - self.answered - self.discarded
        assert due <= set(self.node.held)
        assert set(self.running) <= set(self.node.held)

    @invariant()
    def every_exit_is_reported_or_was_given_away(self):
        for ref in set(self.started) - set(self.running):
            assert ref in self.reported or ref in self.discarded

    @invariant()
    def what_has_its_inputs_begins_or_is_given_up(self):
        if self.now < self.trust and not self.node.fenced:
            for ref in self.fetched - set(self.started):
                assert ref in self.reported or ref in self.discarded


AgentMachine.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    # How busy the machine is says nothing about the agent.
    suppress_health_check=[HealthCheck.too_slow],
)
TestAgentMachine = AgentMachine.TestCase
