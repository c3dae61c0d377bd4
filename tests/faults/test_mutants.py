"""The checker detects every mutant in real processes.

Each scenario is executed with its mutant, and with the unchanged code, which must have no
violations. The fastest are part of every test run; the others need DULY_TORTURE.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.lab import DULY, Lab
from tests.torture.mutants import MUTANTS, sabotage
from tests.torture.scenarios import SCENARIOS, Scenario

pytestmark = pytest.mark.faults
ROOT = Path(__file__).parents[2]
FAST_MUTANTS = ("answer_before_commit", "select_then_insert")


def selected_mutants() -> list[str]:
    return list(MUTANTS if os.environ.get("DULY_TORTURE") else FAST_MUTANTS)


def violated_invariants(lab: Lab, name: str) -> set[int]:
    """Execute the scenario of a mutant; return the violated invariants."""
    scenario = Scenario(lab, lab.folder)
    try:
        SCENARIOS[name][0](scenario)
        violations = scenario.judge()
    finally:
        scenario.close()
    print(*violations, sep="\n")
    return {violation.invariant for violation in violations}


def test_every_mutant_has_its_scenario() -> None:
    assert SCENARIOS.keys() == MUTANTS.keys()


def test_every_mutant_can_be_applied() -> None:
    """Most mutants are run by `make torture` only, and would break unnoticed by a rename."""
    script = """
import os
from tests.torture.mutants import MUTANTS
for name, apply in MUTANTS.items():
    if not (pid := os.fork()):
        apply()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, name
"""
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", selected_mutants())
def test_a_mutant_is_detected(
    name: str, folder: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    lab = Lab(folder, dsn, program=[sys.executable, "-m", "tests.torture.mutant", name])
    sabotage(name, dsn)
    assert SCENARIOS[name][1] <= violated_invariants(lab, name)


@pytest.mark.parametrize("name", selected_mutants())
def test_the_scenario_without_the_mutant_has_no_violations(
    name: str, folder: Path, dsn: str
) -> None:
    assert violated_invariants(Lab(folder, dsn, program=DULY), name) == set()
