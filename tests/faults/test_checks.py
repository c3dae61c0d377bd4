"""A checker that cannot fail shows nothing: each check rejects a history made up to break it."""

from tests.faults.checks import gaps, invented, lost, overlaps, without_one_end
from tests.faults.ledger import Entry


def entry(what: str, attempt: int, token: int) -> Entry:
    return Entry(what, "7", attempt, token, pid=1, at=0.0)


def test_a_task_that_was_acknowledged_and_is_gone_is_found() -> None:
    assert lost(["7", "8"], {7}) == ["task 8 was acknowledged and is gone"]


def test_a_task_that_is_live_and_has_ended_is_found() -> None:
    rows = {"tasks": {7}, "live": {7}, "ended": {7}}
    assert without_one_end(rows) == ["task 7 is live and has ended"]


def test_a_task_without_live_row_and_end_is_found() -> None:
    rows = {"tasks": {7}, "live": set(), "ended": set()}
    assert without_one_end(rows) == ["task 7 is neither live nor ended"]


def test_a_missing_attempt_is_found() -> None:
    assert gaps({7: [1, 3]}) == ["task 7 has the attempts [1, 3]"]


def test_a_success_that_nobody_wrote_down_is_found() -> None:
    history = [entry("start", 1, 1)]
    assert invented([(7, 1)], history) == ["attempt 1 of task 7 succeeded without a trace"]


def test_a_write_after_a_later_attempt_has_started_is_found() -> None:
    history = [entry("start", 1, 1), entry("start", 2, 5), entry("end", 1, 1)]
    assert overlaps(history) == ["task 7: token 1 wrote after token 5"]


def test_a_good_history_is_accepted() -> None:
    history = [entry("start", 1, 1), entry("start", 2, 5), entry("end", 2, 5)]
    rows = {"tasks": {7, 8}, "live": {8}, "ended": {7}}
    found = [
        *lost(["7"], {7, 8}),
        *without_one_end(rows),
        *gaps({7: [2, 1]}),
        *invented([(7, 2)], history),
        *overlaps(history),
    ]
    assert found == []
