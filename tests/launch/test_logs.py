"""What processes say while they run is for an operator to read."""

import logging
import subprocess
import sys
from functools import partial

from duly import clock
from duly.launch.logs import LINES_PER_WINDOW, WINDOW_SECONDS, RateLimit, RepeatLimit

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


def test_what_strangers_can_cause_is_written_at_a_bounded_rate(monkeypatch):
    now = 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    limit = RateLimit()
    record = partial(logging.LogRecord, level=logging.WARNING, msg="", args=(), exc_info=None)

    def written(name, line, times):
        made = (record(name, pathname="a.py", lineno=line) for _ in range(times))
        return [getattr(record, "left_out", 0) for record in made if limit.filter(record)]

    assert written("uvicorn.error", 1, 25) == [0] * LINES_PER_WINDOW
    assert written("uvicorn.error", 2, 1) == [0]
    assert written("duly.server.monitor", 3, 25) == [0] * 25
    now = WINDOW_SECONDS
    assert written("uvicorn.error", 1, 2) == [25 - LINES_PER_WINDOW, 0]
    assert written("uvicorn.error", 2, 1) == [0]


def test_what_an_agent_says_again_and_again_is_written_once_a_minute(monkeypatch):
    now = 100.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    limit = RepeatLimit()

    def written(name, error):
        record = logging.LogRecord(name, logging.WARNING, "a.py", 1, "cannot poll", (), None)
        record.error = error
        return limit.filter(record) and getattr(record, "repeated", 0)

    assert [written("duly.agent.session", "refused") for _ in range(3)] == [0, False, False]
    assert written("duly.agent.session", "starting up") == 0
    assert written("duly.server.service", "refused") == 0
    assert written("duly.server.service", "refused") == 0
    now += WINDOW_SECONDS
    assert [written("duly.agent.session", "refused") for _ in range(2)] == [2, False]
