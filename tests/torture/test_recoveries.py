"""The criteria of recovery, on short synthetic records."""

from dataclasses import replace

import pytest

from tests.torture.cluster_watch import Observation
from tests.torture.history import Call
from tests.torture.journal import Step
from tests.torture.ledger import Entry
from tests.torture.recoveries import Traces, measure
from tests.torture.run_result import Episode


def episode(clock: str, hosts: tuple[str, ...] = (), since: float = 100.0) -> Episode:
    return Episode(
        "fault", "kind", "", hosts, 100.0, 110.0, "nodes", clock, since=since, target=5.0
    )


def lease(at: float, task: int, term: int) -> Step:
    token = int(at * 10)
    return Step(
        seq=token, boot=at, what="live", op="update", task=task, attempt=token, token=token,
        term=term, status="running",
    )  # fmt: skip


def submitted(at: float, outcome: str = "ok") -> Call:
    return Call(op="submit", invoked=at - 1, returned=at, outcome=outcome)  # type: ignore[arg-type]


def entry(what: str, task: int, token: int, node: str, at: float) -> Entry:
    return Entry(what=what, task=task, attempt=token, token=token, node=node, at=at)


def observation(at: float, names: str, leader: str | None = "server-0") -> Observation:
    return Observation(at, frozenset(names.split()), frozenset(), leader)


def took(fault_episode: Episode, traces: Traces) -> list[float | None]:
    return [recovery.took for recovery in measure([fault_episode], traces)]


def test_dispatch_counts_to_the_first_lease_of_a_later_term() -> None:
    journal = [lease(99, 1, 4), lease(101, 2, 4), lease(103, 3, 5), lease(104, 4, 5)]
    assert took(episode("dispatch"), Traces(journal)) == [3.0]
    assert took(episode("dispatch"), Traces(journal[:2])) == [None]


def test_a_step_that_changes_no_token_is_no_lease() -> None:
    first = lease(99, 1, 4)
    update = Step(seq=1000, boot=101, what="live", op="update", task=1, token=first.token, term=5)
    assert took(episode("dispatch"), Traces([first, update])) == [None]


def test_submit_needs_an_admission_and_a_start_that_began_after_the_fault() -> None:
    calls = [submitted(99), submitted(100.5), submitted(101.5, "info"), submitted(102)]
    journal = [lease(99, 1, 4), lease(101, 2, 4)]
    early_starts = [entry("start", 1, 990, "node-a", 101), entry("start", 2, 1010, "node-a", 101.2)]
    late = [early_starts[0], entry("start", 2, 1010, "node-a", 104)]
    fault_episode = episode("submit")
    assert took(fault_episode, Traces(journal, early_starts, calls)) == [2.0]
    assert took(fault_episode, Traces(journal, late, calls)) == [4.0]
    assert took(fault_episode, Traces(journal, early_starts, calls[:3])) == [None]
    assert took(fault_episode, Traces(journal, early_starts[:1], calls)) == [None]


def test_a_gap_before_the_fault_is_healed_delays_recovery() -> None:
    calls = [submitted(101.5)]
    at = [100.5, 101.0, 107.0, 109.0, 112.0, 130.0]
    journal = [lease(moment, task, 4) for task, moment in enumerate(at)]
    entries = [entry("start", step.task or 0, step.token or 0, "", step.boot) for step in journal]
    assert took(episode("submit"), Traces(journal, entries, calls)) == [7.0]


def lost(at: float, task: int, node: int) -> Step:
    return Step(
        seq=task, boot=at, what="attempt", op="insert", task=task, attempt=task, token=task,
        node=node, outcome="lost",
    )  # fmt: skip


def test_rerun_counts_to_the_last_lost_task_that_was_started_again() -> None:
    entries = [
        entry("start", 1, 1, "node-a", 90),
        entry("start", 2, 2, "node-a", 91),
        entry("start", 3, 3, "node-b", 92),
        entry("start", 4, 4, "node-a", 93),
        entry("start", 1, 5, "node-b", 116),
        entry("start", 2, 6, "node-b", 117),
        entry("start", 3, 7, "node-b", 140),
        entry("start", 4, 8, "node-b", 150),
    ]
    journal = [lost(99, 4, 7), lost(114, 1, 7), lost(114, 2, 7), lost(114, 3, 8)]
    names = {7: "node-a", 8: "node-b"}
    fault_episode = episode("rerun", ("node-a",))
    assert took(fault_episode, Traces(journal, entries, nodes=names)) == [17.0]
    assert took(fault_episode, Traces(journal, entries[:4], nodes=names)) == []


def test_leases_after_the_node_was_back_are_lost_to_a_later_fault() -> None:
    names = {7: "node-a"}
    # The journal has a resolution of 0.01 s: 109.995 may have been after the healing.
    for leased_at, expected in ((109, [18.0]), (109.995, [17.0]), (110, [17.0])):
        task = int(leased_at * 10)
        journal = [lost(114, 1, 7), lease(leased_at, task, 4), lost(114.5, task, 7)]
        entries = [
            entry("start", 1, 5, "node-b", 117),
            entry("start", task, 2000, "node-b", 118),
        ]
        assert (
            took(episode("rerun", ("node-a",)), Traces(journal, entries, nodes=names)) == expected
        )


@pytest.mark.parametrize(
    ("observations", "expected"),
    [
        ([observation(101, "server-1"), observation(102, "server-0 server-1")], [2.0]),
        (
            [observation(99, "server-0 server-1"), observation(101, "server-0 server-1", None)],
            [None],
        ),
        ([observation(99, "server-0"), observation(101, "server-1")], [None]),
    ],
)
def test_convergence_needs_a_leader_and_all_affected_hosts(
    observations: list[Observation], expected: list[float | None]
) -> None:
    fault_episode = episode("converged", ("server-0", "db1"))
    assert took(fault_episode, Traces(observations=observations)) == expected


def test_a_node_that_comes_back_late_is_excused_by_a_fault_of_servers_only() -> None:
    late = episode("converged", ("node-a",))
    observations = [Observation(120.0, frozenset(), frozenset({"node-a"}), "server-0")]
    other = Episode("failover", "database", "", (), 102.0, 103.0, "control")
    before = replace(other, began=90.0, healed=95.0)
    neighbour = replace(other, lane="nodes")
    excuses = {
        fault: measure([late, fault], Traces(observations=observations))[0].excuse
        for fault in (other, before, neighbour)
    }
    assert excuses == {other: "failover", before: None, neighbour: None}


def test_faults_without_a_criterion_are_not_measured() -> None:
    fault_episode = Episode("fault", "kind", "", (), 100.0, 110.0)
    assert measure([fault_episode], Traces()) == ()
