"""Checks that every task ended exactly once; otherwise the run fails."""

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


class Wrong(RuntimeError):
    """A task was lost, ran twice, or did not succeed."""


def all_done(dsn: str, tasks: int) -> None:
    """Make sure that the store holds `tasks` and nothing else, each done at its only attempt."""
    row = cluster.rows(dsn, COUNTS)[0]
    each = [row[name] for name in ("tasks", "ends", "done", "attempts", "succeeded")]
    if row["live"] or each != [tasks] * len(each):
        raise Wrong(f"{tasks:,} tasks should be done, each once: {dict(row)}")


def count(dsn: str) -> int:
    """Return how many tasks the store knows, whatever has become of them."""
    found: int = cluster.value(dsn, "select count(*) from duly.tasks")
    return found


def none_lost(dsn: str, tasks: int) -> None:
    """Make sure that of `tasks` each waits, runs or is done, and that none ran twice.

    One statement sees one moment, so that tasks on their way are not missed.
    """
    row = cluster.rows(dsn, COUNTS)[0]
    is_whole = row["tasks"] == tasks and row["live"] + row["ends"] == tasks
    once = row["done"] == row["ends"] == row["succeeded"] == row["attempts"]
    if not is_whole or not once or row["live"] != row["untouched"] + row["running"]:
        raise Wrong(f"{tasks:,} tasks should wait, run or be done once: {dict(row)}")
