"""What the end of a process means."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.agent.supervision.outcome import Exit, Failure, conclude
from duly.model.task import Outcome


@pytest.mark.parametrize(
    ("end", "intent", "outcome", "code", "exit_code"),
    [
        (Exit(code=0), None, Outcome.SUCCEEDED, None, 0),
        (Exit(code=3), None, Outcome.FAILED, "exit_code", 3),
        (Exit(code=-11), None, Outcome.FAILED, "signal", 139),
        (Exit(code=-15, stopped=True, capped=True), None, Outcome.CAPPED,
         "execution_cap_exceeded", 143),
        (Exit(code=0, stopped=True, capped=True), None, Outcome.CAPPED,
         "execution_cap_exceeded", 0),
        (Exit(code=-9, out_of_memory=True), None, Outcome.OVERUSED, "memory_exceeded", 137),
        (Exit(code=-25), None, Outcome.OVERUSED, "disk_exceeded", 153),
        (Exit(code=-15, stopped=True), Outcome.CANCELLED, Outcome.CANCELLED, "cancelled", 143),
        (Exit(code=0, stopped=True), Outcome.CANCELLED, Outcome.CANCELLED, "cancelled", 0),
        (Exit(code=0), Outcome.CANCELLED, Outcome.SUCCEEDED, None, 0),
        (Exit(code=-9, stopped=True), Outcome.PREEMPTED, Outcome.PREEMPTED, "agent_stopped", 137),
        (Exit(code=-9, stopped=True), Outcome.CAPPED, Outcome.CAPPED,
         "execution_cap_exceeded", 137),
        (Exit(code=-9, stopped=True), Outcome.LOST, Outcome.LOST, "lease_lost", 137),
        (Exit(code=None, failure=Failure("exec", errno.ENOENT, "x")), None, Outcome.FAILED,
         "command_not_found", 127),
        (Exit(code=None, failure=Failure("exec", errno.EACCES, "x")), None, Outcome.FAILED,
         "command_not_executable", 126),
        (Exit(code=None, failure=Failure("workspace", errno.EACCES, "x")), None, Outcome.FAILED,
         "not_prepared", None),
        (Exit(code=None, failure=Failure("workspace", errno.ENOSPC, "x")), None, Outcome.EXPIRED,
         "node_short", None),
        (Exit(code=None, never_begun=True), None, Outcome.EXPIRED, "never_begun", None),
        (Exit(code=None, never_begun=True), Outcome.LOST, Outcome.EXPIRED, "never_begun", None),
        (Exit(code=None, never_begun=True), Outcome.CAPPED, Outcome.EXPIRED, "never_begun", None),
        (Exit(code=None, never_begun=True), Outcome.CANCELLED, Outcome.CANCELLED,
         "cancelled", None),
        (Exit(code=None, never_begun=True), Outcome.PREEMPTED, Outcome.EXPIRED,
         "agent_stopped", None),
    ],
)  # fmt: skip
def test_each_end_means_one_thing(end, intent, outcome, code, exit_code):
    conclusion = conclude(end, intent)
    assert conclusion.outcome is outcome
    assert (conclusion.reason.code if conclusion.reason else None) == code
    assert conclusion.exit_code == exit_code


def test_what_is_ended_for_its_cap_before_its_time_is_not_its_fault():
    early = Exit(code=-9, stopped=True, ran=0.1, execution_cap=10.0)
    conclusion = conclude(early, Outcome.CAPPED)
    assert conclusion.outcome is Outcome.LOST
    assert conclusion.reason is not None
    assert conclusion.reason.code == "too_late"
    late = Exit(code=-9, stopped=True, ran=10.0, execution_cap=10.0)
    assert conclude(late, Outcome.CAPPED).outcome is Outcome.CAPPED


def test_the_figures_are_told():
    capped = Exit(code=-9, stopped=True, capped=True, ran=10.5, execution_cap=10.0)
    reason = conclude(capped, None).reason
    assert reason is not None
    assert reason.details == {"execution_cap": 10.0, "ran": 10.5}
    overused = Exit(code=-9, out_of_memory=True, memory_mb=256, peak_memory_mb=256.04)
    reason = conclude(overused, None).reason
    assert reason is not None
    assert reason.details == {"memory_mb": 256, "peak_memory_mb": 256.0}


@given(
    code=st.integers(-64, 255),
    stopped=st.booleans(),
    capped=st.booleans(),
    memory=st.booleans(),
    intent=st.sampled_from([None, *Outcome]).filter(
        lambda o: o not in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.OVERUSED, Outcome.EXPIRED)
    ),
)
def test_only_an_undisturbed_exit_0_is_a_success(code, stopped, capped, memory, intent):
    end = Exit(code=code, stopped=stopped or capped, capped=capped, out_of_memory=memory)
    conclusion = conclude(end, intent)
    if conclusion.outcome is Outcome.SUCCEEDED:
        assert code == 0 and not memory and not capped
    else:
        assert conclusion.reason is not None


def test_a_script_without_its_interpreter_says_which():
    failure = Failure("exec", errno.ENOENT, "/folder/1/script", "/bin/sh\r")
    reason = conclude(Exit(code=None, failure=failure), None).reason
    assert reason.message == r"The interpreter '/bin/sh\r' of the script was not found on the node."
