"""What processes say while they run is for an operator to read."""

import subprocess
import sys

SAYING = """
import logging
from duly.launch.logs import log_to_stderr
log_to_stderr(verbose=False)
logging.getLogger("asyncpg.pool").warning("a traceback for every try")
logging.getLogger("duly.server").warning("PostgreSQL is away", extra={"error": "\\x1b[2J"})
"""


def test_a_database_that_is_away_is_told_in_lines_of_ours_alone():
    said = subprocess.run(
        [sys.executable, "-c", SAYING], check=True, capture_output=True, text=True
    ).stderr
    assert "traceback" not in said
    assert said.endswith("WARNING duly.server: PostgreSQL is away (error=\\x1b[2J)\n")
