import pytest

from duly.cli.exit_codes import describe_end, exit_code_for_error, exit_code_for_task
from duly.errors import ConfigError, Invalid, NotFound, Unavailable, Unreachable

from .shapes import reason, task

SIGNAL = reason("signal", "killed by SIGKILL", signal=9)


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (task(), 0),
        (task(status="failed", outcome="failed", exit_code=3), 3),
        (task(status="failed", outcome="failed", exit_code=137, reason=SIGNAL), 137),
        (task(status="failed", outcome="failed", exit_code=-15), 143),
        (task(status="failed", outcome="failed", exit_code=127), 127),
        (task(status="failed", outcome="failed", exit_code=None), 125),
        (task(status="failed", outcome="capped", exit_code=143), 124),
        (task(status="failed", outcome="overused", exit_code=137), 125),
        (task(status="failed", outcome="lost", exit_code=None), 125),
        (task(status="failed", outcome=None, exit_code=None, attempt=0), 125),
        (task(status="cancelled", outcome="cancelled", exit_code=143), 125),
    ],
)
def test_a_command_ends_as_its_task_did(ended, code):
    assert exit_code_for_task(ended) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unreachable("gone"), 3),
        (Unavailable("busy"), 1),
        (NotFound("none"), 1),
        (Invalid("cpu", "no"), 1),
        (ConfigError("none"), 1),
    ],
)
def test_an_error_ends_a_command_with_the_code_that_was_promised(error, code):
    assert exit_code_for_error(error) == code


@pytest.mark.parametrize(
    ("ended", "line"),
    [
        (task(), "done (attempt 1 of 3); waited 2.0 s, ran 1 min 30 s, peak memory 12 MiB"),
        (
            task(
                status="failed",
                outcome="failed",
                exit_code=1,
                reason=reason(
                    "exit_code",
                    "Exited with code 1. That was its only attempt.",
                    exit_code=1,
                    given_up="attempts_exhausted",
                ),
                failures=1,
                max_attempts=1,
                usage=None,
            ),
            "failed: exit code 1 (attempt 1 of 1); waited 2.0 s, ran 1 min 30 s",
        ),
        (
            task(
                status="failed",
                outcome="failed",
                exit_code=137,
                reason=reason("signal", "Killed by SIGKILL. That was the last of 3 attempts."),
                attempt=5,
                failures=3,
                losses=2,
            ),
            "failed: killed by SIGKILL (attempt 5, 2 lost with their nodes); waited 2.0 s, "
            "ran 1 min 30 s, peak memory 12 MiB",
        ),
        (
            task(attempt=2, losses=1, usage={"peak_memory_mb": 0.4}),
            "done (attempt 2, 1 lost with its node); waited 2.0 s, ran 1 min 30 s, "
            "peak memory under 1 MiB",
        ),
        (
            task(usage={"cpu_seconds": 0.1, "peak_memory_mb": None, "wall_seconds": 90.0}),
            "done (attempt 1 of 3); waited 2.0 s, ran 1 min 30 s",
        ),
        (
            task(status="failed", started_at=None, reason=reason("x", "It was not found.")),
            "failed: it was not found (attempt 1 of 3); it never started",
        ),
        (
            task(status="cancelled", started_at=None, usage=None, attempt=0),
            "cancelled; it never started",
        ),
        (
            task(
                status="failed",
                started_at=None,
                usage=None,
                attempt=0,
                reason=reason("no_node_can_fit", "needs 64 cpu;\x1b[31m no node has them."),
            ),
            "failed: needs 64 cpu;\ufffd[31m no node has them; it never started",
        ),
    ],
)
def test_the_end_is_told_in_one_line(ended, line):
    assert describe_end(ended) == line
