"""The laws that hold after every run, whatever order and whatever harm it saw.

Each law looks at the journal of writes, at the tables as they are when everything is
quiet, and at what actors were told. A law that is broken is a sentence.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import asyncpg

from tests.interleavings.world import Answer, Told

CAPACITY = 1500
FAULTS = ("failed", "capped", "overused")


@dataclass
class Evidence:
    """What a run leaves behind."""

    journal: list[asyncpg.Record]
    tasks: dict[int, asyncpg.Record]
    live: dict[int, asyncpg.Record]
    ends: dict[int, asyncpg.Record]
    attempts: dict[int, list[asyncpg.Record]]
    submissions: dict[str, asyncpg.Record]
    dead: set[int]
    told: Told

    def leases(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (place in the journal, row) for every lease that was made."""
        for row in self.journal:
            if is_lease(row):
                yield row["seq"], row["new"]

    def told_of(self, op: str) -> Iterator[Answer]:
        """Yield what was told of one kind."""
        return (answer for answer in self.told.answers if answer.op == op)

    def ended_tasks(self) -> dict[int, int]:
        """Return where in the journal each task ended."""
        return {
            row["new"]["task_id"]: row["seq"]
            for row in self.journal
            if row["what"] == "ends" and row["op"] == "insert"
        }

    def ended_incarnations(self) -> dict[int, int]:
        """Return where in the journal each incarnation was ended."""
        return {
            row["new"]["id"]: row["seq"]
            for row in self.journal
            if row["what"] == "incarnations" and row["op"] == "update"
        }


def is_lease(row: asyncpg.Record) -> bool:
    """Say whether a row of the journal gave a task to a node."""
    return (
        row["what"] == "live"
        and row["op"] == "update"
        and row["old"]["status"] != "running"
        and row["new"]["status"] == "running"
    )


async def gather(conn: asyncpg.Connection, told: Told) -> Evidence:
    """Read what a run has left."""
    attempts = defaultdict(list)
    for row in await conn.fetch("select * from attempts order by task_id, attempt"):
        attempts[row["task_id"]].append(row)
    return Evidence(
        journal=await conn.fetch("select * from journal order by seq"),
        tasks={row["id"]: row for row in await conn.fetch("select * from tasks")},
        live={row["id"]: row for row in await conn.fetch("select * from live")},
        ends={row["task_id"]: row for row in await conn.fetch("select * from ends")},
        attempts=attempts,
        submissions={row["key"]: row for row in await conn.fetch("select * from submissions")},
        dead={row["task_id"] for row in await conn.fetch("select task_id from dead_letters")},
        told=told,
    )


def no_admitted_task_is_lost(seen: Evidence) -> Iterator[str]:
    for key, spec, task, _ in seen.told.submits:
        row = seen.tasks.get(task)
        if row is None:
            yield f"task {task} was acknowledged and is not stored"
        elif row["idempotency_key"] != key or row["max_attempts"] != spec.max_attempts:
            yield f"task {task} is stored with another body"


def a_key_stands_for_one_task(seen: Evidence) -> Iterator[str]:
    by_key = defaultdict(set)
    for task, row in seen.tasks.items():
        if row["idempotency_key"] is not None:
            by_key[row["idempotency_key"]].add(task)
    for key, _, task, _ in seen.told.submits:
        if key is not None:
            by_key[key].add(task)
    for key, found in by_key.items():
        if len(found) > 1:
            yield f"the key {key} stands for {sorted(found)}"
        elif seen.submissions[key]["task_id"] not in found:
            yield f"the key {key} points to a task that is not there"


def a_task_is_live_or_has_ended(seen: Evidence) -> Iterator[str]:
    for task in seen.tasks:
        if (task in seen.live) == (task in seen.ends):
            yield f"task {task}: live is {task in seen.live}, ended is {task in seen.ends}"
    for task in seen.live.keys() | seen.ends.keys():
        if task not in seen.tasks:
            yield f"task {task} is live or ended, and was never stored"


def an_end_is_final(seen: Evidence) -> Iterator[str]:
    for row in seen.journal:
        if row["what"] in ("ends", "attempts") and row["op"] != "insert":
            yield f"a row of {row['what']} was rewritten: {row['old']}"


def every_step_is_legal(seen: Evidence) -> Iterator[str]:
    for row in seen.journal:
        if row["what"] != "live" or row["op"] != "update":
            continue
        old, new = row["old"], row["new"]
        if old["status"] != "running" and new["status"] == "running":
            if old["status"] != "waiting":
                yield f"task {old['id']} was leased while {old['status']}"
            if new["attempt"] != old["attempt"] + 1:
                yield f"task {old['id']} went from attempt {old['attempt']} to {new['attempt']}"
        elif new["attempt"] != old["attempt"]:
            yield f"task {old['id']} changed its attempt without a lease"
        elif old["status"] == new["status"] == "running" and old["token"] != new["token"]:
            yield f"task {old['id']} changed its token while running"


def attempts_have_no_gaps(seen: Evidence) -> Iterator[str]:
    for task, row in (seen.live | seen.ends).items():
        numbers = [one["attempt"] for one in seen.attempts[task]]
        last = row["attempt"] - (task in seen.live and row["status"] == "running")
        if numbers != list(range(1, last + 1)):
            yield f"task {task} is at attempt {row['attempt']} and has {numbers}"
        tokens = [one["token"] for one in seen.attempts[task]]
        if tokens != sorted(set(tokens)):
            yield f"task {task}: tokens do not rise: {tokens}"


def tallies_are_true(seen: Evidence) -> Iterator[str]:
    for task, row in (seen.live | seen.ends).items():
        outcomes = Counter(one["outcome"] for one in seen.attempts[task])
        failures, losses = sum(outcomes[fault] for fault in FAULTS), outcomes["lost"]
        if (row["failures"], row["losses"]) != (failures, losses):
            yield f"task {task} counts {row['failures']}/{row['losses']}, not {failures}/{losses}"
        if failures > seen.tasks[task]["max_attempts"]:
            yield f"task {task} was tried too often"


def ends_follow_from_attempts(seen: Evidence) -> Iterator[str]:
    for task, end in seen.ends.items():
        last = seen.attempts[task][-1]["outcome"] if seen.attempts[task] else None
        if end["status"] == "done" and last != "succeeded":
            yield f"task {task} is done after an attempt that {last}"
        if last == "succeeded" and end["status"] == "failed":
            yield f"task {task} succeeded and failed"
        if (end["status"] == "failed") != (task in seen.dead):
            yield f"task {task} ended {end['status']}; dead letter: {task in seen.dead}"


def what_was_told_of_reports_is_true(seen: Evidence) -> Iterator[str]:
    for ref, outcome, accepted in seen.told.reports:
        rows = [
            row
            for row in seen.attempts[ref.task]
            if (row["attempt"], row["token"]) == (ref.attempt, ref.token)
        ]
        stored = rows[0]["outcome"] if rows else None
        if accepted and stored != outcome.value:
            yield f"{ref} was accepted as {outcome.value} and is {stored}"
        if not accepted and stored != "lost":
            yield f"{ref} was refused as stale and is {stored}"


def what_runs_fits(seen: Evidence) -> Iterator[str]:
    used: Counter[int] = Counter()
    for row in seen.journal:
        if row["what"] != "live":
            continue
        for state, sign in ((row["old"], -1), (row["new"], 1)):
            if state and state["status"] == "running":
                used[state["incarnation_id"]] += 500 * sign
        for incarnation, amount in used.items():
            if amount > CAPACITY:
                yield f"incarnation {incarnation} has {amount} of {CAPACITY} in use"
                return


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


def terms_rise_and_old_ones_are_silent(seen: Evidence) -> Iterator[str]:
    term = 0
    for row in seen.journal:
        if row["what"] == "terms" and row["op"] == "update":
            if row["new"]["term"] not in (term, term + 1):
                yield f"term {term} was followed by {row['new']['term']}"
            term = row["new"]["term"]
        elif is_lease(row) and row["new"]["term"] != term:
            yield f"task {row['new']['id']} was leased in term {row['new']['term']} of {term}"


def a_sweep_ends_with_its_term(seen: Evidence) -> Iterator[str]:
    terms = [
        (row["seq"], row["new"]["term"])
        for row in seen.journal
        if row["what"] == "terms" and row["op"] == "update"
    ]
    for told in seen.told_of("swept"):
        over = min((place for place, term in terms if term > told.about), default=2**62)
        for row in seen.journal:
            is_its_own = row["pid"] == told.pid and told.asked.place < row["seq"] <= told.place
            if is_its_own and row["seq"] > over:
                yield f"a sweep of term {told.about} wrote {row['what']} after its end"


def what_is_cancelled_stays_so(seen: Evidence) -> Iterator[str]:
    for told in seen.told_of("cancel"):
        task = told.about
        if any(row["id"] == task and place > told.place for place, row in seen.leases()):
            yield f"task {task} was leased after it was cancelled"
        if told.value and task in seen.ends and seen.ends[task]["status"] != "cancelled":
            yield f"task {task} was cancelled and ended {seen.ends[task]['status']}"
        if told.value and task in seen.live:
            yield f"task {task} was cancelled and is {seen.live[task]['status']}"
        if not told.value and seen.ended_tasks().get(task, 2**62) > told.place:
            yield f"task {task} was live, and its cancel was answered as if it had ended"


def a_draining_node_gets_nothing(seen: Evidence) -> Iterator[str]:
    undrained = [
        (row["seq"], row["new"]["id"])
        for row in seen.journal
        if row["what"] == "nodes" and not row["new"]["draining"]
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


def updates_are_kept(seen: Evidence) -> Iterator[str]:
    for task, what, _ in seen.told.updates:
        tried = [
            value for one, field, value in seen.told.tried_updates if (one, field) == (task, what)
        ]
        if seen.tasks[task][what] not in tried:
            yield f"task {task}: {what} is {seen.tasks[task][what]!r} and not one of {tried}"
    for task, row in seen.live.items():
        if row["priority"] != seen.tasks[task]["priority"]:
            yield f"task {task} has two priorities"


LAWS: list[Callable[[Evidence], Iterator[str]]] = [
    no_admitted_task_is_lost,
    a_key_stands_for_one_task,
    a_task_is_live_or_has_ended,
    an_end_is_final,
    every_step_is_legal,
    attempts_have_no_gaps,
    tallies_are_true,
    ends_follow_from_attempts,
    what_was_told_of_reports_is_true,
    what_runs_fits,
    leases_are_made_on_the_living,
    only_the_dead_lose_attempts,
    nothing_runs_when_all_nodes_are_gone,
    terms_rise_and_old_ones_are_silent,
    a_sweep_ends_with_its_term,
    what_is_cancelled_stays_so,
    a_draining_node_gets_nothing,
    nobody_is_renewed_after_the_end,
    updates_are_kept,
]


def broken(seen: Evidence) -> list[str]:
    """Return a sentence for every law that the run broke."""
    return [f"{law.__name__}: {sentence}" for law in LAWS for sentence in law(seen)]
