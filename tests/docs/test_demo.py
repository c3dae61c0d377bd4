"""`make demo` ends well: everything that it tells comes true."""

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"


@pytest.mark.faults
@pytest.mark.timeout(240)
def test_the_demo_keeps_what_it_promises():
    done = subprocess.run([sys.executable, DEMO], capture_output=True, text=True, timeout=220)
    assert done.returncode == 0, done.stdout
    assert "13 checks in" in done.stdout
    assert "NO" not in done.stdout
