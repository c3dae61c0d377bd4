"""The tables show the figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers import table
from benchmarks.peers.catalog import ALL
from benchmarks.peers.figures import Figures, Round, Row
from benchmarks.peers.report import Report, replace_section
from benchmarks.peers.system import Broker

FAST = Figures((Round(1234.5, 2469.0),), (1.0, 2.0, 30.0), checked=3)
SLOW = Figures((Round(100.0, 1000.0),), (5.0,), checked=1)


def row(system, figures=None, broker=Broker.REDIS, **fields):
    return Row(system, broker, "abc", "2026-01-02T03:04:05+00:00", figures=figures, **fields)


def test_the_fastest_system_comes_first_and_unavailable_ones_last():
    rows = [row("huey", left_out="no Redis"), row("celery", SLOW), row("dramatiq", FAST)]
    assert [sorted_row.system for sorted_row in table.by_share(rows)] == [
        "dramatiq",
        "celery",
        "huey",
    ]


def test_a_row_shows_rate_share_and_start():
    assert table.cells(row("dramatiq", FAST)) == (
        *("Dramatiq", "Redis, fsync every second"),
        *("1,234/s", "2,469/s", "50 %", "2.0 ms", "30.0 ms"),
    )


def test_systems_that_call_functions_are_listed_by_their_rate():
    slower = replace(SLOW, functions=(1200.0, 1000.0, 900.0), function_latencies=(3.0, 1.0))
    faster = replace(FAST, functions=(8000.4,), function_latencies=(2.0,))
    rows = [row("celery", slower), row("xargs", SLOW), row("dramatiq", faster)]
    fastest, *others = table.by_function_rate(rows)
    assert table.function_cells(fastest) == (
        *("Dramatiq", "Redis, fsync every second"),
        *("8,000/s", "2.0 ms", "2.0 ms"),
    )
    assert [table.function_cells(other)[2:] for other in others] == [
        ("1,000/s", "1.0 ms", "3.0 ms")
    ]


@pytest.mark.parametrize(("is_failure", "word"), [(True, "failed"), (False, "left out")])
def test_a_row_without_figures_shows_none(is_failure, word):
    shown = table.cells(row("huey", left_out="why", is_failure=is_failure))
    assert shown == ("Huey", "Redis, fsync every second", word, "", "", "", "")


def test_the_report_says_why_a_system_is_missing_and_lists_versions():
    report = Report(
        "2 cores", [row("celery", SLOW, versions=("celery 5",)), row("huey", left_out="no Redis")]
    )
    text = report.markdown()
    assert "- huey (Redis, fsync every second): no Redis\n" in text
    assert "Measured 2026-01-02 at abc on 2 cores. celery 5.\n" in text


def test_a_report_is_the_same_after_json(tmp_path):
    report = Report("2 cores", [row("celery", SLOW), row("huey", left_out="no Redis")])
    report.write(tmp_path / "peers.json")
    assert Report.read(tmp_path / "peers.json") == report


def test_only_the_text_between_the_markers_is_replaced():
    page = "a\n<!-- made by benchmarks/peers from x: begin -->\nold\n<!-- end -->\nb\n"
    once = replace_section(page, "x", "new")
    assert once == "a\n<!-- made by benchmarks/peers from x: begin -->\n\nnew\n\n<!-- end -->\nb\n"
    assert replace_section(once, "x", "new") == once


@pytest.mark.parametrize(
    "page", ["no markers", "<!-- made by benchmarks/peers from x: begin -->\n"]
)
def test_a_page_without_markers_is_refused(page):
    with pytest.raises(ValueError, match="no section marked"):
        replace_section(page, "x", "new")


def test_the_durability_of_every_broker_is_explained():
    assert set(table.DURABILITY) == set(Broker)


@pytest.mark.parametrize("system", ALL, ids=lambda system: system.about.name)
def test_every_system_lists_its_properties_and_settings(system):
    about = system.about
    facts = (about.facts.worker_killed, about.facts.isolation, about.facts.caps, about.facts.logs)
    assert all(facts)
    assert about.settings
    assert "|" not in "".join([about.title, *about.settings, *facts])


def test_every_file_of_a_system_is_in_the_catalog():
    folder = Path(table.__file__).parent / "systems"
    files = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert {system.__module__.rpartition(".")[2] for system in ALL} == files
