"""Invariants of nodes: which may be given leases, and what happens to their attempts."""

from collections.abc import Callable, Iterator

from tests.interleavings.evidence import Evidence
from tests.interleavings.node_operations import MIN_CPU_MILLI


def only_live_incarnations_get_leases(evidence: Evidence) -> Iterator[str]:
    ended = evidence.ended_incarnations()
    for position, row in evidence.leases():
        if ended.get(row["incarnation_id"], position) < position:
            yield f"task {row['id']} was leased to incarnation {row['incarnation_id']}, which ended"


def only_ended_incarnations_lose_attempts(evidence: Evidence) -> Iterator[str]:
    ended = evidence.ended_incarnations()
    for row in evidence.journal:
        is_loss = row["what"] == "attempts" and row["new"]["outcome"] == "lost"
        if is_loss and ended.get(row["new"]["incarnation_id"], row["seq"]) >= row["seq"]:
            yield f"task {row['new']['task_id']} was lost although its incarnation was alive"


def no_task_runs_when_all_nodes_are_lost(evidence: Evidence) -> Iterator[str]:
    for task, row in evidence.live.items():
        if row["status"] == "running":
            yield f"task {task} still runs on incarnation {row['incarnation_id']}"


def a_draining_node_gets_no_lease(evidence: Evidence) -> Iterator[str]:
    undrained = [
        (row["seq"], row["new"]["id"])
        for row in evidence.journal
        if row["what"] == "nodes" and row["old"]["draining"] and not row["new"]["draining"]
    ]
    for answer in evidence.answers_to("drain"):
        # Another actor may have ended the draining between the request and the response.
        undrained_at = [position for position, node in undrained if node == answer.subject]
        until = min(
            (position for position in undrained_at if position > answer.request.position),
            default=2**62,
        )
        for position, row in evidence.leases():
            if (
                answer.value
                and row["node_id"] == answer.subject
                and answer.position < position < until
            ):
                yield f"node {answer.subject} drains and got the lease of {row['id']}"


def no_incarnation_is_renewed_after_its_end(evidence: Evidence) -> Iterator[str]:
    ended = evidence.ended_incarnations()
    for answer in evidence.answers_to("renewed"):
        if ended.get(answer.subject, 2**62) <= answer.request.position:
            yield f"incarnation {answer.subject} was renewed after its end"


def a_stopping_incarnation_gets_no_lease(evidence: Evidence) -> Iterator[str]:
    for answer in evidence.answers_to("stopping"):
        for position, row in evidence.leases():
            if row["incarnation_id"] == answer.subject and position > answer.position:
                yield f"incarnation {answer.subject} stops and got the lease of {row['id']}"


def a_removed_node_gets_no_lease_and_cannot_join(evidence: Evidence) -> Iterator[str]:
    for answer in evidence.answers_to("removed"):
        for position, row in evidence.leases():
            if row["node_id"] == answer.subject and position > answer.position:
                yield f"node {answer.subject} was removed and got the lease of {row['id']}"
        for row in evidence.journal:
            is_begun = row["what"] == "incarnations" and row["op"] == "insert"
            if (
                is_begun
                and row["new"]["node_id"] == answer.subject
                and row["seq"] > answer.position
            ):
                yield f"node {answer.subject} was removed and joined again"


def a_sweep_takes_back_what_ran_on_removed_nodes(evidence: Evidence) -> Iterator[str]:
    for swept in evidence.answers_to("swept"):
        removed = {
            answer.subject
            for answer in evidence.answers_to("removed")
            if answer.position <= swept.request.position
        }
        if removed:
            for row in evidence.running_at(swept.position):
                if row["node_id"] in removed:
                    yield f"task {row['id']} runs on a removed node after a sweep"


def only_tasks_that_fit_nowhere_fail_as_unplaceable(evidence: Evidence) -> Iterator[str]:
    for row in evidence.journal:
        if row["what"] == "live" and row["op"] == "delete":
            end = evidence.ends.get(row["old"]["id"])
            is_unplaceable = end and end["reason"] and end["reason"]["code"] == "no_node_can_fit"
            if is_unplaceable and evidence.needs[row["old"]["shape_id"]] <= MIN_CPU_MILLI:
                yield f"task {row['old']['id']} fits a node, and was failed as unplaceable"


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    only_live_incarnations_get_leases,
    only_ended_incarnations_lose_attempts,
    no_task_runs_when_all_nodes_are_lost,
    a_draining_node_gets_no_lease,
    no_incarnation_is_renewed_after_its_end,
    a_stopping_incarnation_gets_no_lease,
    a_removed_node_gets_no_lease_and_cannot_join,
    a_sweep_takes_back_what_ran_on_removed_nodes,
    only_tasks_that_fit_nowhere_fail_as_unplaceable,
]
