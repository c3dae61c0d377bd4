"""What clients say is kept as they knew it, and the books can be read again."""

from datetime import timedelta
from pathlib import Path

import pytest

from duly.errors import KeyReused, LimitExceeded, Unreachable
from tests.torture import database_dump, history
from tests.torture.history import Recorder
from tests.torture.synthetic_run import done, told


def recorded(folder: Path, error: Exception | None) -> history.Call:
    def do() -> dict[str, str]:
        if error is not None:
            raise error
        return {"id": "7", "status": "waiting", "node": "a"}

    recorder = Recorder(folder / "history", "client")
    recorder.call("submit", do, args={"name": "x"}, key="k")
    recorder.close()
    [call] = history.read([folder / "history"])
    assert (call.op, call.key, call.args, call.process) == ("submit", "k", {"name": "x"}, "client")
    assert call.returned is not None and call.invoked <= call.returned
    return call


@pytest.mark.parametrize(
    ("error", "outcome", "result"),
    [
        (None, "ok", {"id": "7", "status": "waiting"}),
        (KeyReused("It belongs to another."), "fail", {"code": "idempotency_key_reused"}),
        (Unreachable("Nobody answers."), "info", {"code": "unreachable"}),
        (LimitExceeded("Too fast.", timedelta(seconds=1)), "info", {"code": "limit_exceeded"}),
        (TimeoutError(), "info", {"code": "timeout"}),
    ],
)
def test_what_came_of_a_call_is_written_down(
    tmp_path: Path, error: Exception | None, outcome: str, result: dict[str, str]
) -> None:
    call = recorded(tmp_path, error)
    assert (call.outcome, call.result) == (outcome, result)


def test_a_client_that_dies_during_a_call_leaves_behind_that_it_had_asked(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history", "client")
    with pytest.raises(KeyboardInterrupt):
        recorder.call("submit", _die, args={}, key="k")
    recorder.close()
    with (tmp_path / "history").open("a") as file:
        file.write('{"op": "subm')
    [call] = history.read([tmp_path / "history"])
    assert (call.key, call.outcome, call.returned) == ("k", "info", None)


def test_a_submission_needs_a_key(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history", "client")
    with pytest.raises(ValueError, match="a batch without a key"):
        recorder.call("batch", _die, args={})
    recorder.close()


def test_books_can_be_kept_and_read_again(tmp_path: Path) -> None:
    kept = told(done).evidence().books
    kept.save(tmp_path / "books")
    assert database_dump.load(tmp_path / "books") == kept


def _die() -> None:
    raise KeyboardInterrupt
