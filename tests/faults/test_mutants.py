"""The checker detects every mutant in real processes.

Each mutant plays its scenario, and so does Duly as it is, which must be found faultless. The
quickest are part of every run of the tests; the others need DULY_TORTURE to be set.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.lab import DULY, Lab
from tests.torture.mutants import MUTANTS, sabotage
from tests.torture.scenarios import SCENARIOS, Stage

pytestmark = pytest.mark.faults
ROOT = Path(__file__).parents[2]
QUICK = ("answer_before_commit", "select_then_insert")


def chosen() -> list[str]:
    return list(MUTANTS if os.environ.get("DULY_TORTURE") else QUICK)


def found(lab: Lab, name: str) -> set[int]:
    """Play the scenario of a mutant, and return which invariants were broken."""
    stage = Stage(lab, lab.folder)
    try:
        SCENARIOS[name][0](stage)
        violations = stage.judge()
    finally:
        stage.close()
    print(*violations, sep="\n")
    return {violation.invariant for violation in violations}


def test_every_mutant_has_its_scenario() -> None:
    assert SCENARIOS.keys() == MUTANTS.keys()


def test_every_mutant_finds_what_it_changes() -> None:
    """Most are run by `make torture` only, and would rot when a name changes."""
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


@pytest.mark.parametrize("name", chosen())
def test_a_mutant_is_found(
    name: str, folder: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    lab = Lab(folder, dsn, program=[sys.executable, "-m", "tests.torture.mutant", name])
    sabotage(name, dsn)
    assert SCENARIOS[name][1] <= found(lab, name)


@pytest.mark.parametrize("name", chosen())
def test_the_same_without_the_mutant_is_faultless(name: str, folder: Path, dsn: str) -> None:
    assert found(Lab(folder, dsn, program=DULY), name) == set()
