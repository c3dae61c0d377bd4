"""The generated parts of the page of the documentation are up to date."""

from benchmarks.peers.catalog import ALL
from benchmarks.peers.figures import Row
from benchmarks.peers.publish import DATA, PAGE, complete, rendered
from benchmarks.peers.report import Report
from benchmarks.peers.system import Broker


def test_the_page_of_the_documentation_matches_the_figures_and_facts():
    assert rendered(PAGE.read_text(), Report.read(DATA)) == PAGE.read_text()


def test_the_page_has_every_system_with_every_broker_measured_or_not():
    published = [row.key for row in Report.read(DATA).rows]
    every = [(system.about.name, broker) for system in ALL for broker in system.about.brokers]
    assert sorted(published) == sorted(every)


def test_a_system_that_was_not_measured_is_reported_as_missing():
    row = Row("huey", Broker.REDIS, "abc", "2026-01-02", left_out="no Redis")
    rows = complete(Report("2 cores", [row])).rows
    assert row in rows
    assert {other.left_out for other in rows if other != row} == {"not measured this time"}
