"""Calls are recorded with what the client knew, and a dump can be saved and loaded."""

from datetime import timedelta
from pathlib import Path

import pytest

from duly.errors import KeyReused, LimitExceeded, Unreachable
from tests.torture import database_dump, history
from tests.torture.history import Recorder
from tests.torture.synthetic_run import done, run_with


def recorded(folder: Path, error: Exception | None) -> history.Call:
    def request() -> dict[str, str]:
        if error is not None:
            raise error
        return {"id": "7", "status": "waiting", "node": "a"}

    recorder = Recorder(folder / "history", "client")
    recorder.call("submit", request, args={"name": "x"}, key="k")
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
        (Unreachable("No response."), "info", {"code": "unreachable"}),
        (LimitExceeded("Too fast.", timedelta(seconds=1)), "info", {"code": "limit_exceeded"}),
        (TimeoutError(), "info", {"code": "timeout"}),
    ],
)
def test_the_outcome_of_a_call_is_recorded(
    tmp_path: Path, error: Exception | None, outcome: str, result: dict[str, str]
) -> None:
    call = recorded(tmp_path, error)
    assert (call.outcome, call.result) == (outcome, result)


def test_a_client_that_dies_during_a_call_leaves_a_record_of_it(tmp_path: Path) -> None:
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


def test_a_dump_is_the_same_after_it_was_saved_and_loaded(tmp_path: Path) -> None:
    dump = run_with(done).evidence().dump
    dump.save(tmp_path / "dump")
    assert database_dump.load(tmp_path / "dump") == dump


def _die() -> None:
    raise KeyboardInterrupt
