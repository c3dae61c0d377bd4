"""Values that cannot be stored are replaced, and such a report blocks no other."""

import pytest

from duly import wire
from duly.model.task import Outcome, Reason, Usage


@pytest.mark.parametrize(
    "fields",
    [
        {"ran": 1e308, "ended_ago": 1e308},
        {"ran": float("inf"), "ended_ago": float("inf")},
        {"ran": float("nan"), "ended_ago": float("nan")},
        {"ran": -5.0, "ended_ago": -5.0},
        {"usage": Usage(1e300, float("inf"), float("nan"))},
        {"usage": Usage(-1.0, -float("inf"), 0.0)},
        {"exit_code": 2**63},
        {"exit_code": -(2**63)},
        {"log_size": 2**64 - 1},
        {"log_size": -1},
        {"reason": Reason("failed", "half\0way", {"a\0": "\0"})},
        {"reason": Reason("failed", "x" * 100_000, {"y": "z" * 100_000})},
        {"reason": Reason("failed", r"a path \u0000 and \\u0000")},
        {"tail": b"\0\xff" * 10_000},
        {"result": b'"\\u0000 \\ud800"'},
        {"result": b"[" * 100_000},
        {"result": b"\xff"},
        {"result": b'"\0"'},
    ],
    ids=lambda fields: ",".join(fields),
)
async def test_an_odd_report_is_accepted_and_blocks_no_other(lab, fields):
    node = await lab.node()
    odd, plain = await lab.run(node), await lab.run(node)
    reports = [
        wire.AttemptReport(ref=odd, outcome=Outcome.SUCCEEDED, **fields),
        wire.AttemptReport(ref=plain, outcome=Outcome.SUCCEEDED),
    ]
    assert await lab.components.queue_manager.report(node.id, reports) == [True, True]
    assert [await lab.status(ref.task) for ref in (odd, plain)] == ["done", "done"]


@pytest.mark.parametrize(
    "change",
    [
        {"token": 1},
        {"attempt": 1},
        {"task": 1},
        {"token": 2**63},
        {"attempt": 2**31},
        {"task": 2**63},
        {"task": -(2**62)},
    ],
    ids=str,
)
async def test_a_report_of_an_impossible_attempt_is_stale_and_blocks_no_other(lab, change):
    node = await lab.node()
    ref, other = await lab.run(node), await lab.run(node)
    fields = {"task": ref.task, "attempt": ref.attempt, "token": ref.token}
    wrong = wire.AttemptRef(**{name: fields[name] + change.get(name, 0) for name in fields})
    reports = [wire.AttemptReport(ref=one, outcome=Outcome.SUCCEEDED) for one in (wrong, other)]
    assert await lab.components.queue_manager.report(node.id, reports) == [False, True]
    assert await lab.status(ref.task) == "running"


async def test_one_batch_may_hold_a_stale_and_a_current_report_of_one_task(lab):
    old_node = await lab.node()
    old = await lab.run(old_node)
    node = await lab.rejoin(old_node)
    await lab.sweep()
    new = await lab.start(node, old.task)
    reports = [wire.AttemptReport(ref=ref, outcome=Outcome.SUCCEEDED) for ref in (old, new, new)]
    assert await lab.components.queue_manager.report(node.id, reports) == [False, True, True]
    assert await lab.attempts(old.task) == [(1, "lost"), (2, "succeeded")]
