"""Checks that no task was lost or ran twice; a run in which one was fails."""

from benchmarks import cluster

COUNTS = """
select *
  from (select count(*) as tasks from duly.tasks) as a,
       (select count(*) as live,
               count(*) filter (where status = 'waiting' and attempt = 0) as untouched,
               count(*) filter (where status = 'running' and attempt = 1) as running
          from duly.live) as b,
       (select count(*) as ends,
               count(*) filter (where status = 'done' and attempt = 1 and losses = 0) as done
          from duly.ends) as c,
       (select count(*) as attempts,
               count(*) filter (where outcome = 'succeeded' and attempt = 1) as succeeded
          from duly.attempts) as d
"""


class CheckFailed(RuntimeError):
    """A task was lost, ran twice, or did not succeed."""


def all_done(dsn: str, tasks: int) -> None:
    """Raise CheckFailed unless the store holds exactly `tasks` tasks, all done at attempt 1."""
    row = cluster.rows(dsn, COUNTS)[0]
    counts = [row[name] for name in ("tasks", "ends", "done", "attempts", "succeeded")]
    if row["live"] or counts != [tasks] * len(counts):
        raise CheckFailed(f"{tasks:,} tasks should be done, each once: {dict(row)}")


def count(dsn: str) -> int:
    """Return the number of tasks in the store, whatever their status."""
    tasks: int = cluster.value(dsn, "select count(*) from duly.tasks")
    return tasks


def none_lost(dsn: str, tasks: int) -> None:
    """Raise CheckFailed unless `tasks` tasks exist, each waiting, running or done at attempt 1.

    All counts come from one statement, hence from one snapshot: a task that moves from one table
    to another meanwhile is counted once.
    """
    row = cluster.rows(dsn, COUNTS)[0]
    is_complete = row["tasks"] == tasks and row["live"] + row["ends"] == tasks
    ran_once = row["done"] == row["ends"] == row["succeeded"] == row["attempts"]
    if not is_complete or not ran_once or row["live"] != row["untouched"] + row["running"]:
        raise CheckFailed(f"{tasks:,} tasks should wait, run or be done once: {dict(row)}")
