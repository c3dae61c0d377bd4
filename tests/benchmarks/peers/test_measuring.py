"""Every measured task ran once, and no process or file is left behind."""

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
from benchmarks.peers.measure import Workload, measure
from benchmarks.peers.session import log_tail, measure_in_session
from benchmarks.peers.system import Broker, CheckFailed, Context
from benchmarks.peers.systems.two_loops import TwoLoops

ROOT = Path(__file__).parents[3]
LONG_RUN = ("--tasks=2", "--rounds=1", "--single=100000")
SMALL_WORKLOAD = Workload(tasks=10, rounds=2, single=2, warm_up=3, functions=20)
COMMANDS, CALLS = 3 + 2 * 10 + 2, 3 + 2 * 20 + 2


@pytest.fixture
def ledger_file(tmp_path):
    return tmp_path / "ledger"


def test_a_ledger_with_every_number_once_passes(ledger_file):
    for number in (2, 0, 1):
        ledger.record(ledger_file, number)
    ledger.check(ledger_file, 3)
    assert ledger.count(ledger_file) == 3


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ([0, 2], "of 3 tasks 1 did not run, 0 ran"),
        ([0, 1, 2, 1], "of 3 tasks 0 did not run, 1 ran more than once"),
        ([0, 1, 2, 3], "and 1 were never submitted"),
        ([], "of 3 tasks 3 did not run"),
    ],
)
def test_a_ledger_that_differs_fails(ledger_file, numbers, complaint):
    for number in numbers:
        ledger.record(ledger_file, number)
    with pytest.raises(CheckFailed, match=complaint):
        ledger.check(ledger_file, 3)


@pytest.mark.parametrize(("name", "calls"), [("loops", CALLS), ("xargs", 0)])
def test_a_system_is_measured_from_nothing_to_figures(name, calls, tmp_path):
    about = SYSTEMS[name].about
    data, versions = measure_in_session(about, Broker.NONE, SMALL_WORKLOAD, tmp_path)
    figures = read_figures(data)
    assert figures.checked == COMMANDS + calls
    assert (len(figures.rounds), len(figures.latencies)) == (2, 2)
    assert len(figures.functions) == len(figures.function_latencies) == (2 if calls else 0)
    assert all(rate > 0 for rate in figures.functions)
    assert all(a_round.rate > 0 and a_round.limit > 0 for a_round in figures.rounds)
    assert versions == []


class Forgetful(TwoLoops):
    """Skips the last task."""

    def submit(self, numbers, command):
        super().submit(numbers[:-1] if len(numbers) > 1 else numbers, command)


def test_a_system_that_forgets_a_task_gets_no_figures(tmp_path):
    with pytest.raises(CheckFailed, match="of 70 tasks 6 did not run"):
        measure(Forgetful(Context(tmp_path)), SMALL_WORKLOAD)


def test_a_failure_is_reported_with_the_end_of_the_log():
    assert (
        log_tail("\n".join(f"line {n}" for n in range(20)) + "\n\n").splitlines()[-1] == "line 19"
    )
    assert log_tail("\n") == "it failed without output"


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_behind_after_an_interrupt(signal_number, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.peers", "loops", *LONG_RUN],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "PEERS_BUILD": str(tmp_path / "build")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        await_file(tmp_path, "*/started", process)
        driver = only_child(process.pid)
        process.send_signal(signal_number)
        assert process.wait(30) == 128 + signal_number
    finally:
        process.kill()
        process.communicate()
    assert [path for path in tmp_path.iterdir() if path.name.startswith("duly-peers")] == []
    assert not Path(f"/proc/{driver}").exists()


def await_file(folder, pattern, process):
    """Wait until the measurement is in its last part, which would take hours."""
    while not list(folder.glob(pattern)):
        assert process.poll() is None
        time.sleep(0.01)


def only_child(pid):
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
