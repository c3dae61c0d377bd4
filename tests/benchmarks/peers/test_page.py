"""The page of the documentation is up to date with what it is made from."""

from benchmarks.peers.catalog import ALL
from benchmarks.peers.figures import Row
from benchmarks.peers.publish import DATA, PAGE, complete, rendered
from benchmarks.peers.report import Report
from benchmarks.peers.system import Broker


def test_the_page_of_the_documentation_is_what_its_figures_and_facts_make():
    assert rendered(PAGE.read_text(), Report.read(DATA)) == PAGE.read_text()


def test_the_page_has_every_system_with_every_broker_measured_or_not():
    published = [row.key for row in Report.read(DATA).rows]
    every = [(each.about.name, broker) for each in ALL for broker in each.about.brokers]
    assert sorted(published) == sorted(every)


def test_what_nobody_measured_is_said_to_be_missing():
    row = Row("huey", Broker.REDIS, "abc", "2026-01-02", left_out="no Redis")
    rows = complete(Report("2 cores", [row])).rows
    assert row in rows
    assert {each.left_out for each in rows if each != row} == {"not measured this time"}
