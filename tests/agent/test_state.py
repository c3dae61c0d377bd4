"""The protocol of an agent, driven without a network, a clock or a process."""

import pytest

from duly.agent.events import (
    Abandon,
    Assigned,
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
from duly.agent.state import LEASE_MARGIN_SECONDS, MAX_REMEMBERED_ATTEMPTS, Agent
from duly.agent.supervision.freeze_limit import MAX_FROZEN_SECONDS
from duly.agent.supervision.outcome import (
    CANCELLED_BEFORE_START,
    CONCLUSIONS_BEFORE_START,
    END_LOST,
    NEVER_BEGUN,
    REASONS_BY_INTENT,
    Conclusion,
    Exit,
)
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
    assert joined.begin_incarnation(0.0, TTL) == [Trust(TTL - LEASE_MARGIN_SECONDS)]
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
    assert node.handle(ReportAnswered(A), 3.0) == [Forget(A)]
    assert node.held == []


def test_a_late_assignment_of_an_ended_attempt_starts_nothing():
    node = agent()
    node.handle(Assigned(A), 1.0)
    node.handle(Exited(A, DONE), 2.0)
    node.handle(ReportAnswered(A), 3.0)
    assert node.handle(Assigned(A), 4.0) == [Report(A, END_LOST)]
    assert node.handle(Assigned(A), 5.0) == []
    assert node.handle(ReportAnswered(A), 6.0) == [Forget(A)]
    assert node.held == []


def test_an_order_to_end_what_has_ended_is_answered_too():
    node = agent()
    node.handle(Assigned(A), 1.0)
    node.handle(Exited(A, DONE), 2.0)
    node.handle(ReportAnswered(A), 3.0)
    assert node.handle(StopOrdered(Stop(ref=A, why="capped")), 4.0) == [Report(A, END_LOST)]
    node.handle(ReportAnswered(A), 5.0)
    cancel = StopOrdered(Stop(ref=A, why="cancelled"))
    assert node.handle(cancel, 6.0) == [Report(A, CANCELLED_BEFORE_START)]
    node.handle(ReportAnswered(A), 7.0)
    assert node.handle(StopOrdered(Stop(ref=A, why="lost")), 8.0) == []


def test_what_is_remembered_of_the_past_is_bounded():
    node = agent()
    for number in range(MAX_REMEMBERED_ATTEMPTS + 10):
        ref = AttemptRef(number, 1, number)
        node.handle(Assigned(ref), 1.0)
        node.handle(Exited(ref, DONE), 1.0)
        node.handle(ReportAnswered(ref), 1.0)
    assert len(node.ended_refs) == MAX_REMEMBERED_ATTEMPTS


def test_attempts_freeze_when_trust_runs_out_and_thaw_when_it_returns():
    node = agent()
    node.handle(Assigned(A), 1.0)
    assert node.handle(Ticked(), 12.9) == []
    assert node.handle(Ticked(), 13.0) == [Freeze(A)]
    assert node.handle(Ticked(), 14.0) == []
    assert node.handle(Renewed(20.0, TTL), 21.0) == [Trust(33.0), Thaw(A)]


def test_an_attempt_that_was_thawed_freezes_again_and_has_its_time_anew():
    node = agent()
    node.handle(Assigned(A), 1.0)
    assert node.handle(Ticked(), 13.0) == [Freeze(A)]
    assert node.handle(Renewed(20.0, TTL), 21.0) == [Trust(33.0), Thaw(A)]
    assert node.handle(Renewed(22.0, TTL), 23.0) == [Trust(35.0)]
    assert node.handle(Ticked(), 40.0) == [Freeze(A)]
    assert node.handle(Ticked(), 13.0 + MAX_FROZEN_SECONDS) == []
    assert node.handle(Ticked(), 40.0 + MAX_FROZEN_SECONDS) == [Kill(A)]


def test_an_end_that_is_told_twice_is_reported_once():
    node = agent()
    node.handle(Assigned(A), 1.0)
    assert len(node.handle(Exited(A, KILLED), 2.0)) == 1
    assert node.handle(Exited(A, KILLED), 3.0) == []


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
    assert node.handle(Ticked(), 13.0 + MAX_FROZEN_SECONDS - 1) == []
    assert node.handle(Ticked(), 13.0 + MAX_FROZEN_SECONDS) == [Kill(A)]
    lost = Conclusion(Outcome.LOST, REASONS_BY_INTENT[Outcome.LOST], 137)
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


SETTLED = StopOrdered(Stop(ref=A, why="cancelled", is_settled=True))


@pytest.mark.parametrize("before", [[], [StopOrdered(Stop(ref=A, why="cancelled"))]])
def test_an_attempt_whose_task_has_ended_is_killed_without_grace_and_reported(before):
    node = agent()
    for event in (Assigned(A), *before):
        node.handle(event, 1.0)
    assert node.handle(SETTLED, 2.0) == [Kill(A)]
    assert node.handle(SETTLED, 2.1) == []
    assert node.held == [A]
    [report] = node.handle(Exited(A, KILLED), 3.0)
    assert report.conclusion.outcome is Outcome.CANCELLED
    assert node.attempts[A].is_settled
    assert node.handle(ReportAnswered(A), 4.0) == [Forget(A)]


def test_an_attempt_whose_task_has_ended_does_not_start_once_it_is_fetched():
    node = agent()
    node.handle(Assigned(A, needs_fetch=True), 1.0)
    report = Report(A, CONCLUSIONS_BEFORE_START[Outcome.CANCELLED])
    assert node.handle(SETTLED, 2.0) == [Abandon(A), report]
    assert node.handle(Fetched(A), 3.0) == []


def test_a_settled_attempt_that_never_arrived_is_answered_for():
    node = agent()
    assert node.handle(SETTLED, 1.0) == [Report(A, CANCELLED_BEFORE_START)]
    assert node.attempts[A].is_settled
    assert node.handle(Assigned(A), 1.1) == []


def test_something_unknown_that_is_lost_is_ignored():
    assert agent().handle(StopOrdered(Stop(ref=A, why="lost")), 0) == []


@pytest.mark.parametrize(
    ("why", "conclusion"), [("cancelled", CANCELLED_BEFORE_START), ("capped", NEVER_BEGUN)]
)
def test_an_attempt_that_never_arrived_is_answered_for_and_never_started(why, conclusion):
    node = agent()
    assert node.handle(StopOrdered(Stop(ref=A, why=why)), 0) == [Report(A, conclusion)]
    assert node.handle(StopOrdered(Stop(ref=A, why=why)), 0) == []
    assert node.handle(Assigned(A), 0) == []
    assert node.held == [A]
    assert node.handle(ReportAnswered(A), 0) == [Forget(A)]
    assert node.held == []


def test_a_lost_attempt_that_has_ended_is_forgotten_at_once():
    node = agent()
    node.handle(Assigned(A), 1.0)
    node.handle(Exited(A, DONE), 2.0)
    assert node.handle(StopOrdered(Stop(ref=A, why="lost")), 3.0) == [Forget(A)]
    assert node.handle(ReportAnswered(A), 4.0) == []


def test_a_stopping_agent_hands_its_attempts_back_and_leaves():
    node = agent()
    node.handle(Assigned(A), 1.0)
    assert node.handle(StopRequested(), 2.0) == [Terminate(A)]
    expired = Conclusion(Outcome.EXPIRED, REASONS_BY_INTENT[Outcome.EXPIRED])
    assert node.handle(Assigned(B), 2.1) == [Report(B, expired)]
    preempted = Conclusion(Outcome.PREEMPTED, REASONS_BY_INTENT[Outcome.PREEMPTED], 137)
    assert node.handle(Exited(A, KILLED), 3.0) == [Report(A, preempted)]
    assert node.handle(ReportAnswered(A), 4.0) == [Forget(A)]
    assert node.handle(ReportAnswered(B), 4.0) == [Forget(B), Leave()]


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
    assert node.begin_incarnation(5.0, TTL) == [Trust(18.0)]
    assert node.handle(Assigned(AttemptRef(3, 1, 12)), 6.0) == [Start(AttemptRef(3, 1, 12))]


def test_a_fenced_agent_that_holds_nothing_joins_again_at_once():
    assert agent().handle(Fenced(), 1.0) == [Rejoin()]


def test_an_attempt_with_inputs_begins_once_it_has_them():
    node = agent()
    assert node.handle(Assigned(A, needs_fetch=True), 1.0) == [Fetch(A)]
    assert node.handle(Assigned(A, needs_fetch=True), 1.1) == []
    assert node.held == [A]
    assert node.handle(Fetched(A), 2.0) == [Start(A)]
    assert node.handle(Fetched(A), 2.1) == []
    assert node.handle(Exited(A, DONE), 3.0) == [Report(A, SUCCESS)]


REFUSED = Conclusion(Outcome.FAILED, Reason("inputs_too_large", "x"))


def test_an_attempt_whose_inputs_cannot_be_had_ends_for_it():
    node = agent()
    node.handle(Assigned(A, needs_fetch=True), 1.0)
    assert node.handle(Fetched(A, REFUSED), 2.0) == [Abandon(A), Report(A, REFUSED)]
    assert node.handle(ReportAnswered(A), 3.0) == [Forget(A)]
    assert node.handle(Fetched(A), 4.0) == []


@pytest.mark.parametrize("freezer", [True, False])
def test_what_waits_for_its_inputs_is_neither_frozen_nor_begun_without_trust(freezer):
    node = agent(freezer=freezer)
    node.handle(Assigned(A, needs_fetch=True), 1.0)
    assert node.handle(Ticked(), 20.0) == []
    assert node.handle(Fetched(A), 21.0) == []
    assert node.handle(Ticked(), 20.0 + MAX_FROZEN_SECONDS) == []
    sent_at = 30.0 + MAX_FROZEN_SECONDS
    renewed = Renewed(sent_at, TTL)
    assert node.handle(renewed, sent_at) == [Trust(sent_at + TTL - LEASE_MARGIN_SECONDS), Start(A)]


@pytest.mark.parametrize("fetched", [False, True])
@pytest.mark.parametrize(
    ("event", "effects"),
    [
        (
            StopOrdered(Stop(ref=A, why="cancelled")),
            [Abandon(A), Report(A, CANCELLED_BEFORE_START)],
        ),
        (StopOrdered(Stop(ref=A, why="capped")), [Abandon(A), Report(A, NEVER_BEGUN)]),
        (StopOrdered(Stop(ref=A, why="lost")), [Abandon(A), Forget(A)]),
        (Renewed(20.0, 1.0, (Stop(ref=A, why="lost"),)), [Abandon(A), Forget(A)]),
        (Fenced(), [Abandon(A), Forget(A), Rejoin()]),
        (StopRequested(), [Abandon(A), Report(A, CONCLUSIONS_BEFORE_START[Outcome.PREEMPTED])]),
    ],
)
def test_what_waits_for_its_inputs_is_given_up_like_what_never_came(event, effects, fetched):
    node = agent()
    node.handle(Assigned(A, needs_fetch=True), 1.0)
    if fetched:
        node.handle(Fetched(A), 19.0)
    assert node.handle(event, 20.0)[: len(effects)] == effects
    assert node.handle(Fetched(A), 20.0) == []
