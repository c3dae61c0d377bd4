"""A short storm: a cluster under load, a handful of faults, and the same judge as in a long run.

`make torture` is the long one. Here the times of recovery are looked at with patience, because
other tests run on the same machine at the same time; what must not happen must not happen here.
"""

from pathlib import Path

import msgspec
import pytest

from tests.torture import database_dump, history, namespaces, report, run_folder, runner
from tests.torture.database_dump import DatabaseDump
from tests.torture.fault_weights import cards

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]
FEW = ("leader killed", "agent cut off", "failover")
PATIENCE = 3
SEED = 156
"""One with which the faults are short, and the node is cut off longer than its lease lasts."""


def test_a_cluster_under_load_comes_through_a_handful_of_faults(tmp_path: Path) -> None:
    why_not = namespaces.lacking()
    if why_not:
        pytest.skip(why_not)
    options = runner.Options(SEED, 3, cards(FEW), rate=12.0, longest=4.0, decks=1)
    runner.run(options, tmp_path)
    run = run_folder.tell(tmp_path)
    report.write(run, tmp_path)
    assert run.violations == (), tmp_path
    assert sorted(one.fault for one in run.episodes) == sorted(FEW)
    assert [one for one in run.recoveries if not one.is_within(PATIENCE * one.target)] == []
    assert run.tasks > 100
    stored = database_dump.load(tmp_path / run_folder.BOOKS)
    assert any(row.task_id is not None for row in stored.occurrences)
    assert any(row.graph_id is not None for row in stored.occurrences)
    assert any(step.status == "paused" for step in stored.journal)
    assert "nothing says what became of it" in " ".join(after_losing_fire_times(tmp_path, stored))
    assert "is gone" in " ".join(after_losing_a_task(tmp_path, stored))


def after_losing_fire_times(folder: Path, stored: DatabaseDump) -> tuple[str, ...]:
    """Judge the same run as if the first fire time of each schedule were not there."""
    first = {row.schedule_id: row for row in reversed(stored.occurrences)}.values()
    left = [row for row in stored.occurrences if row not in first]
    msgspec.structs.replace(stored, occurrences=left).save(folder / run_folder.BOOKS)
    return messages(folder)


def after_losing_a_task(folder: Path, stored: DatabaseDump) -> tuple[str, ...]:
    """Judge the same run as if one acknowledged task were not there: it must not pass."""
    calls = history.read([folder / run_folder.HISTORY])
    told = next(call for call in calls if (call.op, call.outcome) == ("submit", "ok"))
    left = [row for row in stored.tasks if row.id != int((told.result or {})["id"])]
    msgspec.structs.replace(stored, tasks=left).save(folder / run_folder.BOOKS)
    return messages(folder)


def messages(folder: Path) -> tuple[str, ...]:
    return tuple(one.message for one in run_folder.tell(folder).violations)
