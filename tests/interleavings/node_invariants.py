"""Invariants of nodes: which may be given leases, and what happens to their attempts."""

from collections.abc import Callable, Iterator

from tests.interleavings.evidence import Evidence
from tests.interleavings.node_operations import SMALLEST


def leases_are_made_on_the_living(seen: Evidence) -> Iterator[str]:
    ended = seen.ended_incarnations()
    for place, row in seen.leases():
        if ended.get(row["incarnation_id"], place) < place:
            yield f"task {row['id']} was leased to incarnation {row['incarnation_id']}, which ended"


def only_the_dead_lose_attempts(seen: Evidence) -> Iterator[str]:
    ended = seen.ended_incarnations()
    for row in seen.journal:
        is_loss = row["what"] == "attempts" and row["new"]["outcome"] == "lost"
        if is_loss and ended.get(row["new"]["incarnation_id"], row["seq"]) >= row["seq"]:
            yield f"task {row['new']['task_id']} was taken from a live incarnation"


def nothing_runs_when_all_nodes_are_gone(seen: Evidence) -> Iterator[str]:
    for task, row in seen.live.items():
        if row["status"] == "running":
            yield f"task {task} runs for ever on incarnation {row['incarnation_id']}"


def a_draining_node_gets_nothing(seen: Evidence) -> Iterator[str]:
    undrained = [
        (row["seq"], row["new"]["id"])
        for row in seen.journal
        if row["what"] == "nodes" and row["old"]["draining"] and not row["new"]["draining"]
    ]
    for told in seen.told_of("drain"):
        # Since it was asked for, another may have ended the draining before the answer came.
        again = [place for place, node in undrained if node == told.about]
        until = min((place for place in again if place > told.asked.place), default=2**62)
        for place, row in seen.leases():
            if told.value and row["node_id"] == told.about and told.place < place < until:
                yield f"node {told.about} drains and was given {row['id']}"


def nobody_is_renewed_after_the_end(seen: Evidence) -> Iterator[str]:
    ended = seen.ended_incarnations()
    for told in seen.told_of("renewed"):
        if ended.get(told.about, 2**62) <= told.asked.place:
            yield f"incarnation {told.about} was renewed after its end"


def nothing_is_leased_to_who_stops(seen: Evidence) -> Iterator[str]:
    for told in seen.told_of("stopping"):
        for place, row in seen.leases():
            if row["incarnation_id"] == told.about and place > told.place:
                yield f"incarnation {told.about} stops and was given {row['id']}"


def a_removed_node_gets_nothing_and_stays_away(seen: Evidence) -> Iterator[str]:
    for told in seen.told_of("removed"):
        for place, row in seen.leases():
            if row["node_id"] == told.about and place > told.place:
                yield f"node {told.about} was removed and was given {row['id']}"
        for row in seen.journal:
            is_begun = row["what"] == "incarnations" and row["op"] == "insert"
            if is_begun and row["new"]["node_id"] == told.about and row["seq"] > told.place:
                yield f"node {told.about} was removed and joined again"


def a_sweep_takes_back_what_ran_on_removed_nodes(seen: Evidence) -> Iterator[str]:
    for swept in seen.told_of("swept"):
        gone = {one.about for one in seen.told_of("removed") if one.place <= swept.asked.place}
        if gone:
            for row in seen.running_at(swept.place):
                if row["node_id"] in gone:
                    yield f"task {row['id']} runs on a removed node after a sweep"


def only_what_fits_nowhere_is_given_up_for_that(seen: Evidence) -> Iterator[str]:
    for row in seen.journal:
        if row["what"] == "live" and row["op"] == "delete":
            end = seen.ends.get(row["old"]["id"])
            is_hopeless = end and end["reason"] and end["reason"]["code"] == "no_node_can_fit"
            if is_hopeless and seen.needs[row["old"]["shape_id"]] <= SMALLEST:
                yield f"task {row['old']['id']} would fit, and was given up"


INVARIANTS: list[Callable[[Evidence], Iterator[str]]] = [
    leases_are_made_on_the_living,
    only_the_dead_lose_attempts,
    nothing_runs_when_all_nodes_are_gone,
    a_draining_node_gets_nothing,
    nobody_is_renewed_after_the_end,
    nothing_is_leased_to_who_stops,
    a_removed_node_gets_nothing_and_stays_away,
    a_sweep_takes_back_what_ran_on_removed_nodes,
    only_what_fits_nowhere_is_given_up_for_that,
]
