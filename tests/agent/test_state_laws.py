"""The protocol of an agent under every order of events that can be."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from duly.agent.events import (
    Abandon,
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
    ReportAnswered,
    Start,
    StopOrdered,
    StopRequested,
    Terminate,
    Thaw,
    Ticked,
    Trust,
)
from duly.agent.state import Agent
from duly.agent.supervision.outcome import Conclusion, Exit
from duly.model.task import Outcome, Reason
from duly.wire import AttemptRef, Stop

TTL = 15.0
REFUSED = Conclusion(Outcome.FAILED, Reason("inputs_too_large", "x"))
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
        self.do(self.node.begin_incarnation(sent_at, ttl))
        self.joined = True

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds):
        self.now += seconds
        self.handle(Ticked())

    @precondition(lambda self: self.joined)
    @rule(ref=st.sampled_from(REFS))
    def assign(self, ref):
        self.handle(Assigned(ref, needs_fetch=ref.task % 2 == 1))

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
    @rule(
        ref=st.sampled_from(REFS),
        why=st.sampled_from(["cancelled", "capped", "lost"]),
        is_settled=st.booleans(),
    )
    def order_stop(self, ref, why, is_settled):
        if why == "lost" and ref in self.node.held:
            self.discarded.add(ref)
        is_settled = is_settled and why == "cancelled"
        self.handle(StopOrdered(Stop(ref=ref, why=why, is_settled=is_settled)))

    @rule(ref=st.sampled_from(REFS))
    def answer(self, ref):
        if ref in self.reported:
            self.answered.add(ref)
            self.handle(ReportAnswered(ref))

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
