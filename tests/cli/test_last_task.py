import stat

import pytest

from duly.cli import last
from duly.errors import NotFound


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "duly" / "last"


def test_the_last_task_is_kept_for_each_server(state):
    last.remember("http://a", "1")
    last.remember("http://b", "2")
    last.remember("http://a", "3")
    assert (last.recall("http://a"), last.recall("http://b")) == ("3", "2")
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert [file.name for file in state.parent.iterdir()] == ["last"]


def test_without_a_last_task_one_is_asked_for_its_id():
    with pytest.raises(NotFound, match="give its ID"):
        last.recall("http://a")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"http://a": 3}', "\x00"])
def test_a_damaged_file_counts_as_none_and_is_replaced(state, text):
    state.parent.mkdir()
    state.write_text(text)
    with pytest.raises(NotFound):
        last.recall("http://a")
    last.remember("http://a", "1")
    assert last.recall("http://a") == "1"


def test_a_home_that_cannot_be_written_to_is_no_reason_to_fail(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    last.remember("http://a", "1")


def test_servers_long_forgotten_are_forgotten():
    for number in range(last.KEPT + 5):
        last.remember(f"http://{number}", "1")
    with pytest.raises(NotFound):
        last.recall("http://4")
    assert last.recall("http://5") == "1"
