"""The clocks of recovery, on stories of a few lines."""

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


def wrote(what: str, task: int, token: int, node: str, at: float) -> Entry:
    return Entry(what=what, task=task, attempt=token, token=token, node=node, at=at)


def sight(at: float, names: str, leader: str | None = "server-0") -> Observation:
    return Observation(at, frozenset(names.split()), frozenset(), leader)


def took(one: Episode, traces: Traces) -> list[float | None]:
    return [recovery.took for recovery in measure([one], traces)]


def test_dispatch_counts_to_the_first_lease_of_a_later_term() -> None:
    journal = [lease(99, 1, 4), lease(101, 2, 4), lease(103, 3, 5), lease(104, 4, 5)]
    assert took(episode("dispatch"), Traces(journal)) == [3.0]
    assert took(episode("dispatch"), Traces(journal[:2])) == [None]


def test_a_step_that_changes_no_token_is_no_lease() -> None:
    first = lease(99, 1, 4)
    asked = Step(seq=1000, boot=101, what="live", op="update", task=1, token=first.token, term=5)
    assert took(episode("dispatch"), Traces([first, asked])) == [None]


def test_submit_needs_an_admission_and_a_start_that_began_after_the_fault() -> None:
    calls = [submitted(99), submitted(100.5), submitted(101.5, "info"), submitted(102)]
    journal = [lease(99, 1, 4), lease(101, 2, 4)]
    soon = [wrote("start", 1, 990, "node-a", 101), wrote("start", 2, 1010, "node-a", 101.2)]
    late = [soon[0], wrote("start", 2, 1010, "node-a", 104)]
    one = episode("submit")
    assert took(one, Traces(journal, soon, calls)) == [2.0]
    assert took(one, Traces(journal, late, calls)) == [4.0]
    assert took(one, Traces(journal, soon, calls[:3])) == [None]
    assert took(one, Traces(journal, soon[:1], calls)) == [None]


def test_what_stops_again_before_the_fault_is_healed_does_not_work_yet() -> None:
    calls = [submitted(101.5)]
    at = [100.5, 101.0, 107.0, 109.0, 112.0, 130.0]
    journal = [lease(moment, task, 4) for task, moment in enumerate(at)]
    entries = [wrote("start", step.task or 0, step.token or 0, "", step.boot) for step in journal]
    assert took(episode("submit"), Traces(journal, entries, calls)) == [7.0]


def lost(at: float, task: int, node: int) -> Step:
    return Step(
        seq=task, boot=at, what="attempt", op="insert", task=task, attempt=task, token=task,
        node=node, outcome="lost",
    )  # fmt: skip


def test_rerun_counts_to_the_last_lost_task_that_was_begun_again() -> None:
    entries = [
        wrote("start", 1, 1, "node-a", 90),
        wrote("start", 2, 2, "node-a", 91),
        wrote("start", 3, 3, "node-b", 92),
        wrote("start", 4, 4, "node-a", 93),
        wrote("start", 1, 5, "node-b", 116),
        wrote("start", 2, 6, "node-b", 117),
        wrote("start", 3, 7, "node-b", 140),
        wrote("start", 4, 8, "node-b", 150),
    ]
    journal = [lost(99, 4, 7), lost(114, 1, 7), lost(114, 2, 7), lost(114, 3, 8)]
    names = {7: "node-a", 8: "node-b"}
    one = episode("rerun", ("node-a",))
    assert took(one, Traces(journal, entries, nodes=names)) == [17.0]
    assert took(one, Traces(journal, entries[:4], nodes=names)) == []


def test_what_was_leased_to_the_node_once_it_was_back_is_lost_to_a_later_fault() -> None:
    names = {7: "node-a"}
    # The journal counts in hundredths: what it has at 109.995 may have been after the heal.
    for leased_at, expected in ((109, [18.0]), (109.995, [17.0]), (110, [17.0])):
        task = int(leased_at * 10)
        journal = [lost(114, 1, 7), lease(leased_at, task, 4), lost(114.5, task, 7)]
        entries = [
            wrote("start", 1, 5, "node-b", 117),
            wrote("start", task, 2000, "node-b", 118),
        ]
        assert (
            took(episode("rerun", ("node-a",)), Traces(journal, entries, nodes=names)) == expected
        )


@pytest.mark.parametrize(
    ("sights", "expected"),
    [
        ([sight(101, "server-1"), sight(102, "server-0 server-1")], [2.0]),
        ([sight(99, "server-0 server-1"), sight(101, "server-0 server-1", None)], [None]),
        ([sight(99, "server-0"), sight(101, "server-1")], [None]),
    ],
)
def test_converged_needs_a_leader_and_everybody_who_was_hit(
    sights: list[Observation], expected: list[float | None]
) -> None:
    one = episode("converged", ("server-0", "db1"))
    assert took(one, Traces(sights=sights)) == expected


def test_a_node_that_comes_back_late_is_excused_by_a_fault_of_servers_only() -> None:
    late = episode("converged", ("node-a",))
    sights = [Observation(120.0, frozenset(), frozenset({"node-a"}), "server-0")]
    other = Episode("failover", "database", "", (), 102.0, 103.0, "control")
    before = replace(other, began=90.0, healed=95.0)
    neighbour = replace(other, lane="nodes")
    excuses = {
        one: measure([late, one], Traces(sights=sights))[0].excuse
        for one in (other, before, neighbour)
    }
    assert excuses == {other: "failover", before: None, neighbour: None}


def test_nothing_is_measured_where_nothing_was_promised() -> None:
    one = Episode("fault", "kind", "", (), 100.0, 110.0)
    assert measure([one], Traces()) == ()
