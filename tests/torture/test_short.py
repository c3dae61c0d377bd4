"""A short run: a cluster under load with a few faults, checked like a long run.

`make torture` executes a long run. Here recoveries may take longer than their targets, because
other tests run on the same machine; the invariants hold without exception.
"""

from pathlib import Path

import msgspec
import pytest

from tests.torture import database_dump, history, namespaces, report, run_folder, runner
from tests.torture.database_dump import DatabaseDump
from tests.torture.fault_weights import weighted_faults

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]
FAULTS = ("leader killed", "agent cut off", "failover")
MAX_TARGET_FACTOR = 3
SEED = 156
"""A seed with short faults, and with a node that is partitioned for longer than its lease."""


def test_a_cluster_under_load_survives_a_few_faults(tmp_path: Path) -> None:
    missing = namespaces.missing_requirement()
    if missing:
        pytest.skip(missing)
    options = runner.Options(
        SEED, 3, weighted_faults(FAULTS), rate=12.0, max_task_seconds=4.0, repetitions=1
    )
    runner.run(options, tmp_path)
    run = run_folder.judge_run(tmp_path)
    report.write(run, tmp_path)
    assert run.violations == (), tmp_path
    assert sorted(episode.fault for episode in run.episodes) == sorted(FAULTS)
    assert [
        recovery
        for recovery in run.recoveries
        if not recovery.is_within(MAX_TARGET_FACTOR * recovery.target)
    ] == []
    assert run.tasks > 100
    stored = database_dump.load(tmp_path / run_folder.DUMP)
    assert any(row.task_id is not None for row in stored.occurrences)
    assert any(row.graph_id is not None for row in stored.occurrences)
    assert any(step.status == "paused" for step in stored.journal)
    assert "has passed without a record" in " ".join(after_losing_fire_times(tmp_path, stored))
    assert "is not stored" in " ".join(after_losing_a_task(tmp_path, stored))


def after_losing_fire_times(folder: Path, stored: DatabaseDump) -> tuple[str, ...]:
    """Judge the same run without the first occurrence of each schedule."""
    first = {row.schedule_id: row for row in reversed(stored.occurrences)}.values()
    remaining = [row for row in stored.occurrences if row not in first]
    msgspec.structs.replace(stored, occurrences=remaining).save(folder / run_folder.DUMP)
    return messages(folder)


def after_losing_a_task(folder: Path, stored: DatabaseDump) -> tuple[str, ...]:
    """Judge the same run without one acknowledged task."""
    calls = history.read([folder / run_folder.HISTORY])
    submit = next(call for call in calls if (call.op, call.outcome) == ("submit", "ok"))
    remaining = [row for row in stored.tasks if row.id != int((submit.result or {})["id"])]
    msgspec.structs.replace(stored, tasks=remaining).save(folder / run_folder.DUMP)
    return messages(folder)


def messages(folder: Path) -> tuple[str, ...]:
    return tuple(violation.message for violation in run_folder.judge_run(folder).violations)
