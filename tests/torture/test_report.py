"""The report of a run: its verdict, its figures and its timeline."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from tests.torture import report, timeline
from tests.torture.run_result import Episode, Finding, Lease, Recovery, RunResult, rates

EPISODES = (
    Episode("leader killed", "server", "server-0", ("server-0",), 10.0, 16.0),
    Episode('<disk> & "clock"', "odd", "", (), 30.0, 31.0),
)
IN_TIME = Recovery("leader killed", "dispatch", 10.0, 3.25, 5.0)
RUN = RunResult(
    seed=7,
    commit="abc",
    minutes=1.0,
    seconds=60.0,
    tasks=1234,
    calls={"submit, ok": 1234},
    episodes=EPISODES,
    recoveries=(IN_TIME,),
    event_times={"submitted": (1.0, 2.0), "started": (2.0,), "ended": ()},
    leases=(Lease(1.0, 1), Lease(14.0, 2)),
)


def test_a_run_is_good_without_violations_and_with_every_recovery_in_time() -> None:
    late = replace(IN_TIME, took=5.5)
    never = replace(IN_TIME, took=None)
    assert RUN.is_good
    assert not replace(RUN, violations=(Finding("[1] lost"),)).is_good
    assert not replace(RUN, recoveries=(IN_TIME, late)).is_good
    assert not replace(RUN, recoveries=(never,)).is_good


def test_percentiles_are_measured_values_and_none_means_never() -> None:
    hundred = [float(value) for value in range(1, 101)]
    assert report.percentile(hundred, 0.5) == 50
    assert report.percentile(hundred, 0.99) == 99
    assert report.percentile([2.0], 0.99) == 2
    summed = report.summaries([IN_TIME, replace(IN_TIME, took=None)])
    assert [(row["count"], row["p50"], row["max"]) for row in summed] == [(2, 3.25, None)]


def test_the_report_is_written_for_people_and_for_programs(tmp_path: Path) -> None:
    steps = ("1.000  journal  live insert: waiting (attempt 0)",)
    bad = replace(RUN, violations=tuple(Finding(f"[1] task {n}", steps) for n in range(60)))
    report.write(bad, tmp_path)
    document = msgspec.json.decode((tmp_path / "report.json").read_bytes())
    assert (document["is_good"], len(document["violations"]), document["seed"]) == (False, 60, 7)
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# NOT GOOD: 1,234 tasks, 2 faults, 60 violations, 0 of 1 recoveries")
    assert f"- [1] task 0\n\n      {steps[0]}\n" in text
    assert "- and 10 more" in text
    assert "| leader killed | dispatch | 1 | 0 | 3.25 | 3.25 | 3.25 | 5.0 |" in text


def test_the_timeline_is_well_formed_and_shows_every_fault_and_term() -> None:
    drawn = ElementTree.fromstring(timeline.draw(RUN))
    words = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert {"leader killed", '<disk> & "clock"', "1", "2", "3.2"} <= set(words)
    ElementTree.fromstring(timeline.draw(replace(RUN, episodes=(), recoveries=(), leases=())))


def test_rates_count_the_events_of_each_interval() -> None:
    assert rates([0.0, 1.0, 1.9, 2.0, -1.0, 99.0], 4.0, 2.0) == [1.5, 0.5, 0.0]
