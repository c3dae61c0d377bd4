"""What a folder holds, whatever its owner does to mislead whoever counts."""

import os

import pytest

from duly.agent.limits import disk_usage
from duly.agent.limits.disk_usage import DiskUsage, measure

MIB = 2**20


def test_files_in_all_folders_are_added_up(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    for name, size in (("one", MIB), ("a/two", 2 * MIB), ("a/b/three", 3 * MIB)):
        (tmp_path / name).write_bytes(os.urandom(size))
    usage = measure(str(tmp_path))
    assert usage.size == pytest.approx(6 * MIB, abs=100_000)
    assert (usage.largest, usage.is_countable) == (3 * MIB, True)


def test_links_lead_nowhere_and_a_file_of_two_names_counts_once(tmp_path):
    (tmp_path / "file").write_bytes(os.urandom(MIB))
    (tmp_path / "again").hardlink_to(tmp_path / "file")
    (tmp_path / "root").symlink_to("/")
    (tmp_path / "up").symlink_to("..")
    os.mkfifo(tmp_path / "pipe")
    assert measure(str(tmp_path)).size == pytest.approx(MIB, abs=20_000)


def test_a_file_with_holes_takes_what_is_written_of_it(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * MIB)
    usage = measure(str(tmp_path))
    assert usage.size < MIB
    assert usage.largest == 100 * MIB


def test_what_is_too_deep_or_too_much_to_count_is_more_than_any_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_usage, "MAX_DEPTH", 10)
    deep = tmp_path / "/".join("d" * 20)
    deep.mkdir(parents=True)
    assert measure(str(tmp_path)).exceeds(2**60)
    monkeypatch.undo()
    assert not measure(str(tmp_path)).exceeds(2**60)
    monkeypatch.setattr(disk_usage, "MAX_FILES", 10)
    assert measure(str(tmp_path)).exceeds(2**60)


def test_what_is_not_there_holds_nothing(tmp_path):
    assert measure(str(tmp_path / "nothing")) == DiskUsage(0, 0)


def test_without_a_limit_nothing_is_too_much():
    assert not DiskUsage(2**60, 2**60, is_countable=False).exceeds(0)
