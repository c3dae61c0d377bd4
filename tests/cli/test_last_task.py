import stat

import pytest

from duly.cli import last_task
from duly.client.endpoint import parse_endpoint
from duly.errors import NotFound

A, B = parse_endpoint("http://a", "kim"), parse_endpoint("http://b", "kim")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "duly" / "last"


def test_the_last_task_is_kept_for_each_server(state):
    last_task.remember(A, "1")
    last_task.remember(B, "2")
    last_task.remember(A, "3")
    assert (last_task.recall(A), last_task.recall(B)) == ("3", "2")
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert [file.name for file in state.parent.iterdir()] == ["last"]


def test_the_last_task_is_kept_for_each_key_of_which_only_a_digest_is_stored(state):
    sam = parse_endpoint("http://a", "the key of sam")
    last_task.remember(A, "1")
    with pytest.raises(NotFound, match="with this key"):
        last_task.recall(sam)
    last_task.remember(sam, "2")
    assert (last_task.recall(A), last_task.recall(sam)) == ("1", "2")
    assert "the key of sam" not in state.read_text()


def test_the_latest_tasks_are_kept_once_each_and_in_order():
    for number in range(last_task.MAX_TASKS + 5):
        last_task.remember(A, str(number))
    last_task.remember(A, "10")
    assert last_task.recent(A)[:3] == ["10", "24", "23"]
    assert len(set(last_task.recent(A))) == last_task.MAX_TASKS


def test_without_a_last_task_one_is_asked_for_its_id():
    with pytest.raises(NotFound, match="Give a task ID"):
        last_task.recall(A)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"http://a": 3}', '{"http://a": "3"}', "\x00"])
def test_a_damaged_file_counts_as_none_and_is_replaced(state, text):
    state.parent.mkdir()
    state.write_text(text)
    with pytest.raises(NotFound):
        last_task.recall(A)
    last_task.remember(A, "1")
    assert last_task.recall(A) == "1"


def test_a_home_that_cannot_be_written_to_is_no_reason_to_fail(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    last_task.remember(A, "1")


def test_servers_long_forgotten_are_forgotten():
    for number in range(last_task.MAX_ENDPOINTS + 5):
        last_task.remember(parse_endpoint(f"http://{number}"), "1")
    with pytest.raises(NotFound):
        last_task.recall(parse_endpoint("http://4"))
    assert last_task.recall(parse_endpoint("http://5")) == "1"
