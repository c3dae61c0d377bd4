"""The tables say what the figures say."""

from pathlib import Path

import pytest

from benchmarks.peers import table
from benchmarks.peers.catalog import ALL
from benchmarks.peers.figures import Figures, Round, Row
from benchmarks.peers.report import Report, put_between_marks
from benchmarks.peers.system import Broker

QUICK = Figures((Round(1234.5, 2469.0),), (1.0, 2.0, 30.0), checked=3)
SLOW = Figures((Round(100.0, 1000.0),), (5.0,), checked=1)


def row(system, figures=None, broker=Broker.REDIS, **fields):
    return Row(system, broker, "abc", "2026-01-02T03:04:05+00:00", figures=figures, **fields)


def test_the_quickest_comes_first_and_what_was_left_out_last():
    rows = [row("huey", left_out="no Redis"), row("celery", SLOW), row("dramatiq", QUICK)]
    assert [each.system for each in table.by_share(rows)] == ["dramatiq", "celery", "huey"]


def test_a_row_shows_rate_share_and_start():
    assert table.cells(row("dramatiq", QUICK)) == (
        *("Dramatiq", "Redis, fsync every second"),
        *("1,234/s", "2,469/s", "50 %", "2.0 ms", "30.0 ms"),
    )


@pytest.mark.parametrize(("is_failure", "word"), [(True, "failed"), (False, "left out")])
def test_a_row_without_figures_shows_none(is_failure, word):
    shown = table.cells(row("huey", left_out="why", is_failure=is_failure))
    assert shown == ("Huey", "Redis, fsync every second", word, "", "", "", "")


def test_the_report_says_why_a_system_is_missing_and_what_took_part():
    told = Report(
        "2 cores", [row("celery", SLOW, versions=("celery 5",)), row("huey", left_out="no Redis")]
    )
    text = told.markdown()
    assert "- huey (Redis, fsync every second): no Redis\n" in text
    assert "Measured 2026-01-02 at abc on 2 cores. celery 5.\n" in text


def test_a_report_is_the_same_after_it_was_kept(tmp_path):
    told = Report("2 cores", [row("celery", SLOW), row("huey", left_out="no Redis")])
    told.write(tmp_path / "peers.json")
    assert Report.read(tmp_path / "peers.json") == told


def test_text_is_put_between_the_marks_and_nowhere_else():
    page = "a\n<!-- made by benchmarks/peers from x: begin -->\nold\n<!-- end -->\nb\n"
    once = put_between_marks(page, "x", "new")
    assert once == "a\n<!-- made by benchmarks/peers from x: begin -->\n\nnew\n\n<!-- end -->\nb\n"
    assert put_between_marks(once, "x", "new") == once


@pytest.mark.parametrize("page", ["no marks", "<!-- made by benchmarks/peers from x: begin -->\n"])
def test_a_page_without_marks_is_refused(page):
    with pytest.raises(ValueError, match="no place marked"):
        put_between_marks(page, "x", "new")


def test_every_way_to_keep_tasks_is_explained():
    assert set(table.KEPT) == set(Broker)


@pytest.mark.parametrize("system", ALL, ids=lambda system: system.about.name)
def test_every_system_says_what_it_gives_and_how_it_was_set_up(system):
    about = system.about
    facts = (about.facts.worker_killed, about.facts.isolation, about.facts.caps, about.facts.logs)
    assert all(facts)
    assert about.settings
    assert "|" not in "".join([about.title, *about.settings, *facts])


def test_every_file_of_a_system_is_in_the_catalog():
    folder = Path(table.__file__).parent / "systems"
    files = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert {system.__module__.rpartition(".")[2] for system in ALL} == files
