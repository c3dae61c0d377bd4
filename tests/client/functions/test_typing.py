"""Type checkers see the calls of tasks as they see calls of functions."""

import re
import sys
from pathlib import Path

from mypy import api

CALLS = Path(__file__).parent / "typing" / "calls.py"
ROOT = Path(__file__).parents[3]
EXPECTED = "# error: "


def expected_errors() -> dict[int, str]:
    """Return what mypy must say, by line."""
    lines = CALLS.read_text().splitlines()
    return {
        number + 2: line.strip().removeprefix(EXPECTED)
        for number, line in enumerate(lines)
        if line.strip().startswith(EXPECTED)
    }


def test_good_calls_pass_and_bad_calls_are_refused_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    options = ["--strict", "--config-file", "", "--follow-imports", "silent"]
    places = ["--python-executable", sys.executable, "--cache-dir", str(tmp_path)]
    output, _, _ = api.run([*options, *places, str(CALLS)])
    errors = {int(line): text for line, text in re.findall(r"calls\.py:(\d+): error: (.*)", output)}
    expected = expected_errors()
    assert errors.keys() == expected.keys(), output
    for line, text in expected.items():
        assert errors[line].startswith(text), errors[line]
