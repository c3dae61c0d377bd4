"""Results are written, read, merged, drawn and published."""

from xml.etree import ElementTree

import msgspec
import pytest

from benchmarks import chart, performance_page, report
from benchmarks.machine import Machine
from benchmarks.results import Results, merge
from benchmarks.rig import Sizes
from duly.bench.figure import Figure, at_least, at_most

MACHINE = Machine(
    cpu="a <fast> one",
    cores=2,
    memory_gib=4.0,
    system="Linux",
    python="3.11",
    postgresql="18",
    fsync="on",
    commit="abc",
    at="now",
)
FAST = Figure(part="a", name="a & b", value=50, unit="/s", limit=100.0, target=at_least(0.4))
SLOW = Figure(part="b", name="slow", value=12.0, unit="ms", target=at_most(6.0))
PLAIN = Figure(part="b", name="no target", value=1.0, unit="ms")


def results(*figures, failures=None):
    return Results(machine=MACHINE, figures=list(figures), failures=failures or {})


def test_results_are_the_same_after_they_were_written_and_read(tmp_path):
    run = results(FAST, SLOW, PLAIN, failures={"b": "lost one"})
    report.write(run, tmp_path / "new")
    assert report.load(tmp_path / "new" / report.JSON) == run
    assert not run.is_valid


def test_longer_is_better_in_the_chart_whichever_way_the_target_points():
    assert chart.score(FAST) == pytest.approx(1.25)
    assert chart.score(SLOW) == pytest.approx(0.5)


def test_the_chart_is_valid_and_shows_the_figures_that_have_a_target():
    drawn = ElementTree.fromstring(chart.draw(results(FAST, SLOW, PLAIN)))
    words = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "1 of 2 targets met" in words
    assert "a & b" in words
    assert "50.0/s of 100/s · 50% · target ≥ 40%" in words
    assert "12.0 ms · target ≤ 6.00" in words
    assert "no target" not in words


def test_the_chart_of_a_run_that_went_wrong_says_so():
    assert "1 of 1 targets met; WRONG: run" in chart.draw(results(FAST, failures={"run": "x"}))


def test_the_chart_is_valid_when_nothing_was_measured():
    ElementTree.fromstring(chart.draw(results()))


def test_parts_that_were_measured_apart_are_merged():
    earlier = results(FAST, SLOW, failures={"c": "lost one", "b": "was slow"})
    again = msgspec.structs.replace(SLOW, value=5.0)
    both = merge(results(again), earlier, ["a", "b", "c"])
    assert both.figures == [FAST, again]
    assert both.failures == {"c": "lost one"}


def test_results_of_another_commit_are_not_merged():
    other = msgspec.structs.replace(MACHINE, commit="def", at="then")
    earlier = Results(machine=other, figures=[FAST], failures={})
    with pytest.raises(ValueError, match="another commit"):
        merge(results(SLOW), earlier, ["a", "b"])


def test_the_terminal_shows_every_figure_and_what_went_wrong(capsys):
    report.print_table(results(FAST, SLOW, PLAIN, failures={"run": "lost one"}))
    shown = capsys.readouterr().out
    for words in ("a & b", "50%", "≥ 40%", "NO", "no target", "fsync on", "WRONG: run: lost one"):
        assert words in shown


def test_only_the_figures_of_a_page_are_replaced():
    text = f"before\n{performance_page.BEGIN}\nold figures\n{performance_page.END}\nafter\n"
    new = performance_page.with_figures(text, results(FAST))
    assert new.startswith("before\n") and new.endswith("\nafter\n")
    assert "old figures" not in new and "50.0/s" in new and "commit abc" in new
    assert performance_page.with_figures(new, results(FAST)) == new


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError, match="no markers"):
        performance_page.with_figures("nothing here", results(FAST))


def test_results_of_a_run_that_went_wrong_are_not_published(tmp_path):
    with pytest.raises(SystemExit, match="went wrong"):
        performance_page.update_page(
            tmp_path / "page.md", results(FAST, failures={"run": "lost one"})
        )


def test_the_page_of_the_documentation_has_the_markers():
    text = performance_page.PAGE.read_text()
    assert performance_page.BEGIN in text and performance_page.END in text


def test_scaled_sizes_are_never_zero():
    small = Sizes().scaled(0.0001)
    assert (small.rounds, small.latencies, small.snapshot_seconds) == (1, 1, 1)
    assert small.waiting_many == 10
