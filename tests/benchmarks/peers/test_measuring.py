"""What is measured was done, each task once; and nothing is left, whatever happens."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.peers import ledger
from benchmarks.peers.catalog import SYSTEMS
from benchmarks.peers.figures import read_figures
from benchmarks.peers.measure import Extent, measure
from benchmarks.peers.session import last_words, measure_in_session
from benchmarks.peers.system import Broker, Place, Wrong
from benchmarks.peers.systems.two_loops import TwoLoops

ROOT = Path(__file__).parents[3]
LONG = ("--tasks=2", "--rounds=1", "--single=100000")
LITTLE = Extent(tasks=10, rounds=2, single=2, warm=3)


@pytest.fixture
def book(tmp_path):
    return tmp_path / "ledger"


def test_a_ledger_with_every_number_once_is_right(book):
    for number in (2, 0, 1):
        ledger.enter(book, number)
    ledger.check(book, 3)
    assert ledger.count(book) == 3


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ([0, 2], "of 3 tasks 1 did not run, 0 ran"),
        ([0, 1, 2, 1], "of 3 tasks 0 did not run, 1 ran more than once"),
        ([0, 1, 2, 3], "and 1 were never submitted"),
        ([], "of 3 tasks 3 did not run"),
    ],
)
def test_a_ledger_that_differs_is_wrong(book, numbers, complaint):
    for number in numbers:
        ledger.enter(book, number)
    with pytest.raises(Wrong, match=complaint):
        ledger.check(book, 3)


@pytest.mark.parametrize("name", ["loops", "xargs"])
def test_a_system_is_measured_from_nothing_to_figures(name, tmp_path):
    about = SYSTEMS[name].about
    kept, versions = measure_in_session(about, Broker.NONE, LITTLE, tmp_path)
    figures = read_figures(kept)
    assert figures.checked == 3 + 2 * 10 + 2
    assert (len(figures.rounds), len(figures.latencies)) == (2, 2)
    assert all(each.rate > 0 and each.limit > 0 for each in figures.rounds)
    assert versions == []


class Forgetful(TwoLoops):
    """Leaves the last task out."""

    def submit(self, numbers, command):
        super().submit(numbers[:-1] if len(numbers) > 1 else numbers, command)


def test_a_system_that_forgets_a_task_gets_no_figures(tmp_path):
    with pytest.raises(Wrong, match="of 25 tasks 3 did not run"):
        measure(Forgetful(Place(tmp_path)), LITTLE)


def test_a_failure_is_told_by_the_end_of_the_log():
    assert (
        last_words("\n".join(f"line {n}" for n in range(20)) + "\n\n").splitlines()[-1] == "line 19"
    )
    assert last_words("\n") == "it failed and said nothing"


@pytest.mark.parametrize("order", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_broken_off(order, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.peers", "loops", *LONG],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "PEERS_BUILD": str(tmp_path / "build")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        await_file(tmp_path, "*/started", process)
        driver = only_child(process.pid)
        process.send_signal(order)
        assert process.wait(30) == 128 + order
    finally:
        process.kill()
        process.communicate()
    assert [each for each in tmp_path.iterdir() if each.name.startswith("duly-peers")] == []
    assert not Path(f"/proc/{driver}").exists()


def await_file(folder, pattern, process):
    """Wait until the measurement is in its last part, which takes hours if nobody ends it."""
    while not list(folder.glob(pattern)):
        assert process.poll() is None
        time.sleep(0.01)


def only_child(pid):
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
